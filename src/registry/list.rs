//! Listing and searching agents, page by page.
//!
//! A page is of one position. Page tokens are keyset tokens: they hold the digest of the filter, the last key
//! and the ledger's id, so a page goes on after the last agent whatever was registered meanwhile, and a token
//! of another ledger or filter is refused instead of giving something else.

use std::ops::Bound;
use std::sync::Arc;

use super::consult::{Demand, consult};
use super::{Call, Read, Refusal, Registry};
use crate::card::modes;
use crate::clock::Moment;
use crate::terms::{AgentName, Digest, Freshness, Reason, check_part};
use crate::view::{Agent, Served};

/// What agents are wanted; all that is set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub namespace: Option<String>,
    /// A skill's id, exactly.
    pub skill: Option<String>,
    /// A tag of any skill, exactly.
    pub tag: Option<String>,
    /// A media type that any skill takes or gives.
    pub mode: Option<String>,
    /// `streaming`, `push_notifications`, `extended_card`, or an extension's URI.
    pub capability: Option<String>,
    /// The URL of an interface, exactly.
    pub url: Option<String>,
    /// Part of the name or description of the card or of a skill, in any case.
    pub text: Option<String>,
}

/// A list as it was asked for.
#[derive(Debug, Clone, Default)]
pub struct List {
    pub filter: Filter,
    /// 1 to 1,000; more is cut. `None`: 100.
    pub page_size: Option<u32>,
    pub page_token: Option<String>,
    pub read: Read,
}

/// One page.
#[derive(Debug)]
pub struct Page {
    pub agents: Vec<Arc<Agent>>,
    pub next_page_token: Option<String>,
    /// No further page, and the filter was evaluated on everything.
    pub complete: bool,
    pub freshness: Freshness,
}

const PAGE_DEFAULT: u32 = 100;
const PAGE_MAX: u32 = 1_000;
/// Capabilities that have a name; all others are extensions, named by their URI.
const CAPABILITIES: [&str; 3] = ["streaming", "push_notifications", "extended_card"];
/// Agents looked at before other tasks get their turn.
const STRETCH: usize = 2_048;

impl Registry {
    /// One page of the agents that are not retired, by namespace and name.
    ///
    /// # Errors
    /// A malformed filter or token, or a view that does not stand where the read wants it.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn list(&self, call: &Call, request: &List) -> Result<Page, Refusal> {
        let filter = Matcher::of(&request.filter)?;
        let size = match request.page_size {
            Some(0) => return Err(Refusal::invalid("page_size of 0 is too small: 1 to 1000")),
            size => size.unwrap_or(PAGE_DEFAULT).min(PAGE_MAX) as usize,
        };
        let token = request.page_token.as_deref().map(Token::parse).transpose()?;
        let positions: Vec<_> = request.read.at_least.iter().copied().collect();
        let demand = Demand {
            tolerance: self.tolerance(&request.read),
            positions: &positions,
            wait: request.read.wait,
        };
        // A node that has not loaded the ledger lists nothing as if there were nothing.
        let loaded = |served: &Arc<Served>, now: &Moment| {
            if served.loaded { Ok((Arc::clone(served), *now)) } else { Err(Reason::FreshnessUnverifiable) }
        };
        let (served, now) = match consult(&self.view, &self.settings, call, demand, loaded).await {
            Ok(found) => found,
            Err(Ok(denied)) => return Err(self.refuse_read(&denied)),
            Err(Err(refusal)) => return Err(refusal),
        };
        let state = &served.state;
        let digest = filter.digest();
        if let Some(token) = &token {
            if token.filter != digest {
                return Err(Refusal::invalid("page_token belongs to a list with another filter"));
            }
            if token.ledger_id != state.ledger_id() {
                let detail = "page_token is of another ledger; list again from the first page";
                return Err(Refusal::new(Reason::PageTokenExpired, detail));
            }
        }
        let mut from = match token {
            Some(token) => Bound::Excluded(token.last),
            None => filter.first(),
        };
        let mut agents = Vec::new();
        let mut complete = false;
        while agents.len() <= size && !complete {
            let mut looked_at = 0;
            let mut last = None;
            for agent in state.live_from(from.as_ref()).take(STRETCH) {
                looked_at += 1;
                last = Some(&agent.name);
                if filter.is_past(agent) {
                    looked_at = 0;
                    break;
                }
                if filter.matches(agent) {
                    agents.push(Arc::clone(agent));
                    if agents.len() > size {
                        break;
                    }
                }
            }
            complete = looked_at < STRETCH && agents.len() <= size;
            from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.clone()));
            if !complete && agents.len() <= size {
                tokio::task::yield_now().await;
            }
        }
        let more = agents.len() > size;
        agents.truncate(size);
        let next_page_token = match agents.last() {
            Some(last) if more => Some(Token::format(digest, state.ledger_id(), &last.name)),
            _ => None,
        };
        let freshness = served.freshness(&now);
        Ok(Page { agents, complete: next_page_token.is_none(), next_page_token, freshness })
    }
}

impl Filter {
    /// Refuses what is set and empty, which would match everything or nothing, and a capability that is misspelt,
    /// which must not be looked for as a URI.
    fn check(&self) -> Result<(), Refusal> {
        let texts = [
            ("skill", &self.skill),
            ("tag", &self.tag),
            ("mode", &self.mode),
            ("capability", &self.capability),
            ("url", &self.url),
            ("q", &self.text),
        ];
        if let Some((name, _)) = texts.iter().find(|(_, text)| text.as_deref() == Some("")) {
            return Err(Refusal::invalid(format!("{name}: must not be empty")));
        }
        if let Some(namespace) = &self.namespace {
            check_part(namespace).map_err(|error| Refusal::invalid(format!("namespace: {error}")))?;
        }
        match self.capability.as_deref() {
            Some(name) if !CAPABILITIES.contains(&name) && !name.contains(':') => {
                let shown: String = name.chars().take(60).collect();
                Err(Refusal::invalid(format!(
                    "capability: `{}` is none of {}, or the URI of an extension",
                    shown.escape_debug(),
                    CAPABILITIES.join(", ")
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A filter that was checked.
struct Matcher<'a> {
    filter: &'a Filter,
    text: Option<String>,
}

impl<'a> Matcher<'a> {
    fn of(filter: &'a Filter) -> Result<Self, Refusal> {
        filter.check()?;
        Ok(Self { filter, text: filter.text.as_ref().map(|text| text.to_lowercase()) })
    }

    fn digest(&self) -> Digest {
        let f = self.filter;
        let parts = [&f.namespace, &f.skill, &f.tag, &f.mode, &f.capability, &f.url, &f.text];
        let joined: Vec<String> = parts.iter().map(|part| format!("{part:?}")).collect();
        Digest::of(joined.join("\0").as_bytes())
    }

    /// Where the first agent that can match may be.
    fn first(&self) -> Bound<AgentName> {
        // No name sorts before `0`.
        let first =
            self.filter.namespace.as_deref().and_then(|namespace| AgentName::new(namespace, "0").ok());
        first.map_or(Bound::Unbounded, Bound::Included)
    }

    /// Whether no agent from here on can match.
    fn is_past(&self, agent: &Agent) -> bool {
        self.filter.namespace.as_deref().is_some_and(|namespace| agent.name.namespace() > namespace)
    }

    fn matches(&self, agent: &Agent) -> bool {
        let Some(card) = agent.card() else { return false };
        let normal = card.normal();
        let f = self.filter;
        f.namespace.as_deref().is_none_or(|namespace| agent.name.namespace() == namespace)
            && f.skill.as_deref().is_none_or(|id| normal.skill(id).is_some())
            && f.tag
                .as_deref()
                .is_none_or(|tag| normal.skills.iter().any(|skill| skill.tags.iter().any(|t| **t == *tag)))
            && f.mode.as_deref().is_none_or(|mode| {
                let mut all = normal
                    .skills
                    .iter()
                    .flat_map(|s| s.effective_input.iter().chain(s.effective_output.iter()));
                all.any(|there| modes::accepts(there, mode))
            })
            && f.capability.as_deref().is_none_or(|capability| match capability {
                "streaming" => normal.capabilities.streaming,
                "push_notifications" => normal.capabilities.push_notifications,
                "extended_card" => normal.capabilities.extended_card,
                uri => normal.extensions.iter().any(|extension| *extension.uri == *uri),
            })
            && f.url
                .as_deref()
                .is_none_or(|url| normal.interfaces.iter().any(|interface| *interface.url == *url))
            && self.text.as_deref().is_none_or(|text| {
                let holds = |there: &str| there.to_lowercase().contains(text);
                let mut skills = normal.skills.iter();
                holds(&normal.name)
                    || holds(&normal.description)
                    || skills.any(|s| holds(&s.name) || holds(&s.description))
            })
    }
}

/// A page token: hex, so that it needs no quoting in an address.
struct Token {
    filter: Digest,
    ledger_id: String,
    last: AgentName,
}

impl Token {
    fn format(filter: Digest, ledger_id: &str, last: &AgentName) -> String {
        hex::encode(format!("{}\n{ledger_id}\n{last}", filter.hex()))
    }

    fn parse(text: &str) -> Result<Self, Refusal> {
        let read = || {
            let text = String::from_utf8(hex::decode(text).ok()?).ok()?;
            let mut lines = text.split('\n');
            let token = Self {
                filter: lines.next()?.parse().ok()?,
                ledger_id: lines.next()?.to_owned(),
                last: lines.next()?.parse().ok()?,
            };
            lines.next().is_none().then_some(token)
        };
        read().ok_or_else(|| Refusal::invalid("page_token is not one that this registry gave"))
    }
}
