"""Train one GAN over data that cannot be moved (MD-GAN, Hardy et al. 2019)."""

import logging

__version__ = "0.6.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent until a program says where
