"""Deep autoregressive networks (Gregor, Danihelka, Mnih, Blundell and Wierstra, 2014).

Eqs. (1), (2)       model/autoregressive      triangular logistic regression
Sec. 2.1            more/nade, more/made      other conditionals
Sec. 2.2            images/                   local connectivity, periodic weights; PixelCNN
Sec. 2.3            model/autoregressive      exact samples
Eqs. (3)-(10)       model/model, layers       encoder, decoder, prior
Eqs. (11)-(16)      model/description_length  and the likelihood
Sec. 3              codec/                    rows to files and back; tables to files by themselves
Sec. 4, App. A      model/gradients           the gradient through bits
Sec. 5.1            train/selection           architectures by validation rows
Sec. 5.2            model/weight_noise

A table of one's own: train/density (`DARNDensity`), train/density_choice, more/chain, more/masked, more/mixture.
What is told of a model: report, pictures.
"""

import lazy_loader

from gpflow_deep_base.runtime.tensor_float import full_float32  # with that TensorFlow starts without noise, too

full_float32()

# Names are imported from where __init__.pyi says when they are used, so that a part needs no more than it imports.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
