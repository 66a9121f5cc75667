"""What variations of the model do: experiments with small models, each at most some minutes long on one core."""
