//! `cardfence history`: an agent's revisions, newest first, and what each changed.

use super::arguments::{Server, Standing, agent_path};
use super::exit::Exit;
use super::failure::Failure;
use super::list::{Wanted, all, json, tell_rest};
use super::printer::{Printer, Sheet, Style};
use super::query::Query;
use super::words;
use super::written::class_style;
use crate::terms::AgentName;
use crate::wire::{Change, RevisionItem};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    #[arg(value_name = "NS/NAME")]
    agent: AgentName,
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
    let path = format!("{}/revisions", agent_path(&args.agent));
    let wanted = Wanted {
        path: &path,
        filter: Query::default(),
        standing: args.standing,
        limit: args.limit,
        token: args.page_token,
    };
    let (list, elapsed) = all::<RevisionItem>(&client, wanted).await?;
    if printer.is_json() {
        printer.json(json(&list)?.as_bytes())?;
        return Ok(Exit::Done);
    }
    let mut sheet =
        Sheet::new(&["revision", "registered", "card version", "change", "", "what", "release", "note"]);
    for item in &list.items {
        let change = item.change.as_ref();
        let kind = if item.kind == "card" { "first" } else { item.kind.as_str() };
        let class = change.map_or(kind, |change| change.class.as_str());
        let silent = change.is_some_and(|change| change.silent);
        sheet.row([
            (&item.revision.to_string(), Style::Strong),
            (&words::moment(&item.registered_at), Style::Plain),
            (item.card_version.as_deref().unwrap_or("-"), Style::Plain),
            (class, class_style(class)),
            (if silent { "silent" } else { "" }, Style::Bad),
            (&change.map(gist).unwrap_or_default(), Style::Plain),
            (item.release.as_deref().unwrap_or(""), Style::Plain),
            (item.note.as_deref().or(item.source.as_deref()).unwrap_or(""), Style::Quiet),
        ]);
    }
    printer.sheet(&sheet)?;
    tell_rest(&list, elapsed, printer);
    Ok(Exit::Done)
}

/// A change on one line: its gravest items first, and how many more there are.
fn gist(change: &Change) -> String {
    let rank = |class: &str| match class {
        "breaking" => 0,
        "additive" => 1,
        _ => 2,
    };
    let mut items: Vec<_> = change.items.iter().collect();
    items.sort_by_key(|item| rank(&item.class));
    let named = |item: &crate::wire::Item| {
        let kind = item.kind.replace('_', " ");
        if item.subject.is_empty() { kind } else { format!("{kind} {}", item.subject) }
    };
    let mut text = items.iter().take(2).map(|item| named(item)).collect::<Vec<_>>().join(", ");
    if items.len() > 2 {
        text.push_str(&format!(" and {} more", items.len() - 2));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Item;

    #[test]
    fn the_gravest_items_come_first() {
        let item = |kind: &str, class: &str| Item {
            kind: kind.to_owned(),
            class: class.to_owned(),
            pointer: String::new(),
            subject: "s".to_owned(),
        };
        let items = vec![
            item("text_changed", "cosmetic"),
            item("skill_added", "additive"),
            item("skill_removed", "breaking"),
        ];
        let change = Change { class: "breaking".to_owned(), silent: true, items, items_omitted: 0 };
        assert_eq!(gist(&change), "skill removed s, skill added s and 1 more");
    }
}
