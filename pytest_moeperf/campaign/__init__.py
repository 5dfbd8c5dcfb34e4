"""Launches are what costs, and one launch serves every cell of its backend: the campaign plans, measures and
asks the gate."""

from __future__ import annotations

from pytest_moeperf.campaign.events import CampaignEvent, CellResult
from pytest_moeperf.campaign.plan import CampaignPlan, PlanStage, plan_campaign
from pytest_moeperf.campaign.run import Campaign

__all__ = ["Campaign", "CampaignEvent", "CampaignPlan", "CellResult", "PlanStage", "plan_campaign"]
