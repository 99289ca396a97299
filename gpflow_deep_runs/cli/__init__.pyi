from . import flags as flags
from .main import call as call
from .main import run as run
