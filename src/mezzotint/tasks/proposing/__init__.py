"""A run proposed to a newcomer: a shipped recipe, the settings to change in it, and a reason for each.

Values are those of the shipped recipes and of the guides. What they leave open follows from the data: the steps from
the number of images, captions and prompts from the trigger word, preservation from its class. From outside: `choices`,
`proposing`.
"""
