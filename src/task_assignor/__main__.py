"""`python -m task_assignor`: the command `task-assignor`, where its script is not on the path."""

from task_assignor.cli import main

if __name__ == "__main__":
    main()
