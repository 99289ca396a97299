"""What TensorBoard's own code finds in event files."""

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import metadata as plugin_metadata


def hparams(folder: Path) -> dict[str, Any]:
    """Settings of the one event file in a folder, by the hparams plugin's protocol buffers."""
    (path,) = folder.iterdir()
    found: dict[str, Any] = {}
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        for value in tf.compat.v1.Event.FromString(record).summary.value:
            if value.metadata.plugin_data.plugin_name == "hparams":
                start = plugin_metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
                found |= {name: getattr(v, v.WhichOneof("kind")) for name, v in start.hparams.items()}
    return found
