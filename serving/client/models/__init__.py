"""Operations on Models: deploy, change, wait, roll out, explain, read logs. Shared by the command and the package."""
