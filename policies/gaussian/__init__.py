"""Forecasts by Gaussian processes, after Zacheilas et al., Elastic Complex Event Processing exploiting Prediction.

Section III-B of the paper; pages and algorithms named GPML are of Rasmussen and Williams, Gaussian Processes for
Machine Learning.
"""
