"""The report on runs (`rlvr report`) and the model card.

runs     a run's folder, read
charts   which curves are shown, in which colours
page     one HTML file of it all
card     README.md beside a saved model
"""
