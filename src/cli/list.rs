//! `cardfence list`: agents by filter, page after page.
//!
//! Pages are fetched until the end or the limit. Every page after the first must be of its position or a
//! later one, so a balancer that sends the next request to a node which lags cannot make agents vanish
//! between two pages.

use super::arguments::{Server, Standing};
use super::client::{Client, Request};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::{Printer, Sheet, Style};
use super::query::Query;
use super::words;
use crate::wire::{AgentItem, List};
use serde::de::DeserializeOwned;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this namespace
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// With a skill of this id
    #[arg(long, value_name = "ID")]
    skill: Option<String>,
    /// With a skill of this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// With a skill that takes or gives this media type
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// `streaming`, `push_notifications`, `extended_card`, or the URI of an extension
    #[arg(long, value_name = "CAPABILITY")]
    capability: Option<String>,
    /// With an interface at exactly this URL
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// With this text in a name or description, in any case
    #[arg(long, short, value_name = "TEXT")]
    q: Option<String>,
    /// At most this many
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    #[command(flatten)]
    standing: Standing,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let mut filter = Query::default();
    filter.set_some("namespace", args.namespace.as_ref());
    filter.set_some("skill", args.skill.as_ref());
    filter.set_some("tag", args.tag.as_ref());
    filter.set_some("mode", args.mode.as_ref());
    filter.set_some("capability", args.capability.as_ref());
    filter.set_some("url", args.url.as_ref());
    filter.set_some("q", args.q.as_ref());
    let wanted = Wanted {
        path: "/v1/agents",
        filter,
        standing: args.standing,
        limit: args.limit,
        token: args.page_token,
    };
    let (list, elapsed) = all::<AgentItem>(&client, wanted).await?;
    if printer.is_json() {
        printer.json(json(&list)?.as_bytes())?;
        return Ok(Exit::Done);
    }
    if list.items.is_empty() {
        printer.line("no agents")?;
    } else {
        let mut sheet =
            Sheet::new(&["agent", "revision", "card version", "generation", "registered", "by", ""]);
        for item in &list.items {
            let lapsed = item.freshness.unconfirmed == Some(true);
            sheet.row([
                (&item.agent, Style::Strong),
                (&item.revision.to_string(), Style::Plain),
                (item.card_version.as_deref().unwrap_or("-"), Style::Plain),
                (&item.generation, Style::Plain),
                (&words::moment(&item.registered_at), Style::Plain),
                (&item.registered_by, Style::Quiet),
                (if lapsed { "unconfirmed" } else { "" }, Style::Warn),
            ]);
        }
        printer.sheet(&sheet)?;
    }
    tell_rest(&list, elapsed, printer);
    Ok(Exit::Done)
}

/// What else there is, and how old the list can be; for people.
pub(super) fn tell_rest<T>(list: &List<T>, elapsed: Duration, printer: &mut Printer) {
    let count = words::count(list.items.len() as u64, "item", "items");
    let rest = match (&list.next_page_token, list.complete) {
        (Some(token), _) => format!(", more with --page-token {token}"),
        (None, true) => ", complete".to_owned(),
        (None, false) => ", not complete".to_owned(),
    };
    let paint = printer.note_paint();
    printer.note(
        paint.text(
            Style::Quiet,
            format_args!("{count}{rest}; {}", words::freshness(&list.freshness, elapsed)),
        ),
    );
}

pub(super) fn json<T: serde::Serialize>(list: &List<T>) -> Result<String, Failure> {
    serde_json::to_string(list).map_err(|error| super::failure::failed(error.to_string()))
}

/// A list as it is wanted.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a str,
    pub(super) filter: Query,
    pub(super) standing: Standing,
    pub(super) limit: Option<u64>,
    pub(super) token: Option<String>,
}

/// The most that one page may hold.
const PAGE_MAX: u64 = 1_000;

/// All pages as one list, and the time since its oldest was asked for. Its freshness is that of the first
/// page, which is the oldest, with the largest bound of all.
pub(super) async fn all<T: DeserializeOwned>(
    client: &Client,
    wanted: Wanted<'_>,
) -> Result<(List<T>, Duration), Failure> {
    let Wanted { path, filter, mut standing, limit, mut token } = wanted;
    let mut whole: Option<List<T>> = None;
    let mut elapsed = Duration::ZERO;
    loop {
        let held = whole.as_ref().map_or(0, |list| list.items.len() as u64);
        let size = limit.map_or(PAGE_MAX, |limit| limit.saturating_sub(held).min(PAGE_MAX));
        let mut query = filter.clone();
        standing.add_to(&mut query);
        query.set("page_size", size);
        query.set_some("page_token", token.as_ref());
        let answer = client.read(Request::get(path, &query)).await?;
        elapsed = elapsed.saturating_add(answer.elapsed);
        let page: List<T> = answer.read()?;
        token = page.next_page_token.clone();
        let whole = match &mut whole {
            None => {
                standing.at_least = page.freshness.position.parse().ok().or(standing.at_least);
                whole.insert(page)
            }
            Some(list) => {
                list.items.extend(page.items);
                list.next_page_token = page.next_page_token;
                list.complete = page.complete;
                list.freshness.staleness_ms =
                    list.freshness.staleness_ms.zip(page.freshness.staleness_ms).map(|(a, b)| a.max(b));
                list
            }
        };
        let enough = limit.is_some_and(|limit| whole.items.len() as u64 >= limit);
        if token.is_none() || enough {
            break;
        }
    }
    let whole = whole.ok_or_else(|| super::failure::failed("the registry gave no page"))?;
    Ok((whole, elapsed))
}
