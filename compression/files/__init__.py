"""`.bcz` files and files for other programs.

container, contents           what is written and read
checking                      what is written is read again first
coding                        its parts, their arithmetic coding, and what reading may take
random_codes                  minimal random codes (Havasi et al., 2018)
pack, single_file             from a network to a file and its numbers
weights_file                  weights only, of any network
export                        for TensorFlow Lite, ONNX and Keras
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)
