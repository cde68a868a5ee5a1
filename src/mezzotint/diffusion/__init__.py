"""The mathematics: functions of tensors. Noise, schedule, timesteps, target, weight, loss; no model and no file.

From outside: every file.
"""
