"""What belongs to a subject: pictures of its class, masks, new words."""
