"""What MD-GAN does by flags alone, and not by default."""
