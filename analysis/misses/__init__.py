"""Why prompt tokens were computed: the ladder of ideal caches over what the store tells."""
