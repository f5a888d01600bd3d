"""Where the texts of one place differ: laid beside each other, in slots, in what order and form."""
