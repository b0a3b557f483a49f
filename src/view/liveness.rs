//! What is known of agents' origins outside the ledger, in the order in which it was confirmed. Pure.
//!
//! The view itself needs two numbers of each row, which are in the agent's own cell. Whole rows are kept for edges,
//! which ask for what was confirmed since a moment: so an edge of an edge learns what the edge knows, and no more.

use std::sync::Arc;

use crate::ledger::Liveness;
use crate::terms::{AgentName, Timestamp};

/// The name is always there; without one, a key lies before all others of its moment.
type Key = (Timestamp, Option<AgentName>);

/// The newest row of each agent. Clones share structure.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    in_order: imbl::OrdMap<Key, Arc<Liveness>>,
    confirmed: imbl::OrdMap<AgentName, Timestamp>,
}

impl Known {
    /// Takes a row, unless a newer one of the agent is known.
    pub(super) fn take(&mut self, row: &Liveness) {
        let (agent, at) = (&row.agent, row.origin_confirmed_at);
        if let Some(before) = self.confirmed.get(agent).copied() {
            if before > at {
                return;
            }
            self.in_order.remove(&(before, Some(agent.clone())));
        }
        self.confirmed.insert(agent.clone(), at);
        self.in_order.insert((at, Some(agent.clone())), Arc::new(row.clone()));
    }

    /// What was confirmed at or after `since` (`None`: ever), the oldest first.
    pub(super) fn since(&self, since: Option<Timestamp>) -> impl Iterator<Item = &Arc<Liveness>> {
        let from: Key = (since.unwrap_or(Timestamp::from_micros(i64::MIN)), None);
        self.in_order.range(from..).map(|(_, row)| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(agent: &str, at: i64) -> Liveness {
        Liveness {
            agent: agent.parse().unwrap(),
            revision: 1,
            origin_confirmed_at: Timestamp::from_micros(at),
            registers: Vec::new(),
            lease: None,
        }
    }

    fn since(known: &Known, since: Option<i64>) -> Vec<(String, i64)> {
        let rows = known.since(since.map(Timestamp::from_micros));
        rows.map(|row| (row.agent.to_string(), row.origin_confirmed_at.as_micros())).collect()
    }

    #[test]
    fn each_agent_is_told_once_with_its_newest_row_the_oldest_first() {
        let mut known = Known::default();
        for (agent, at) in [("a/b", 5), ("a/a", 7), ("a/b", 9), ("a/b", 8), ("a/c", 5), ("a/a", 7)] {
            known.take(&row(agent, at));
        }
        let told =
            |rows: &[(&str, i64)]| rows.iter().map(|(a, at)| ((*a).to_owned(), *at)).collect::<Vec<_>>();
        assert_eq!(since(&known, None), told(&[("a/c", 5), ("a/a", 7), ("a/b", 9)]));
        assert_eq!(since(&known, Some(7)), told(&[("a/a", 7), ("a/b", 9)]));
        assert_eq!(since(&known, Some(8)), told(&[("a/b", 9)]));
        assert_eq!(since(&known, Some(10)), []);
    }
}
