"""Keep each workload's fleet as its queue and policy ask: ``tick`` tells the story."""
