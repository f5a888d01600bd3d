"""Which part of the prompts breaks prefix caching: slots learned by alignment, told apart by behaviour."""
