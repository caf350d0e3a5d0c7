"""Models, their parts and their exact cost."""
