"""Pictures that an evaluation leaves in its folder."""
