"""The ground floor: what all five papers and their runs need and that is no mathematics. NumPy only.

    files      files that are whole or absent, JSON
    container  a model in one file: JSON and arrays in an .npz archive, with a version and a checksum
    frame      small binary files: magic, version, checksum, integers of variable length, bounded reads
    columns    frames whose columns are no numbers, for estimators
    arithmetic coding of decisions, within the compiled loops of the codecs
    limits     how much memory the reader of a file may take, and one message for a damaged file
    scores     log loss and calibration error of classifiers
    seeds      integer seeds and named streams of random numbers
    stopping   the best evaluation so far, when to stop looking for a better one, and signals that ask for an end
    tracing    compiled functions that belong to one model
    groups     dataclasses whose fields stand in groups
    doors      names of a package that are imported at their first use
    text       aligned tables, times and means with their errors
    page       a report as one HTML file, with plots as SVG and without the network
    threads    one thread of BLAS for small matrices
    quiet      TensorFlow's start without its noise, from the first import of this package on
    tensor_float  products of float32 matrices as such, on GPUs too

Nothing here imports TensorFlow when it is imported.
"""

from gpflow_deep_base.quiet import quieten_tensorflow

quieten_tensorflow()
