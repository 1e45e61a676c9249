"""`python -m exhume`, and so `torchrun -m exhume`."""

from exhume.cli import main

if __name__ == "__main__":
    main()
