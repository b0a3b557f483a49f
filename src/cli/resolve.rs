//! `cardfence resolve`: a fence in flags, and the card or a refusal.

use bytes::Bytes;
use http::StatusCode;

use super::arguments::{Server, Standing, agent_path, duration, fingerprint, tagged};
use super::client::{Answer, Request};
use super::exit::Exit;
use super::failure::{Failure, failed};
use super::printer::{Printer, Sheet, Style, one_line};
use super::query::{Query, parse_skill};
use super::words;
use crate::card::{Card, Limits};
use crate::terms::{AgentName, Digest, Position, RevisionRef};
use crate::wire::{Envelope, Skill};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    #[arg(value_name = "NS/NAME")]
    agent: AgentName,
    #[command(flatten)]
    standing: Standing,
    /// The raw digest of the card that you hold: nothing is sent when it is still current
    #[arg(long, value_name = "DIGEST", value_parser = tagged)]
    known: Option<String>,
    /// What was current at this position, instead of now
    #[arg(long, value_name = "POSITION", conflicts_with_all = FENCED)]
    at: Option<Position>,
    /// Print the card alone, byte for byte
    #[arg(long, conflicts_with_all = ["json", "known"])]
    card: bool,
    #[command(flatten)]
    server: Server,
    // Last, since its heading holds for all that follows.
    #[command(flatten)]
    conditions: Conditions,
}

/// What the past is not fenced with.
const FENCED: [&str; 11] = [
    "min_revision",
    "min_version",
    "skill",
    "streaming",
    "push_notifications",
    "extended_card",
    "extension",
    "pin",
    "pin_skills",
    "pin_negotiation",
    "max_origin_age",
];

/// What the card must say.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Fence (refused unless all of it is proven)")]
pub(super) struct Conditions {
    /// The least revision: `7`, or `7@<position>` where it must be of that history
    #[arg(long, value_name = "REVISION")]
    min_revision: Option<RevisionRef>,
    /// The least `version` of the card, compared as SemVer
    #[arg(long, value_name = "VERSION")]
    min_version: Option<String>,
    /// A skill, with modes: 'id;in=MODE;out=MODE'; repeatable (a `;` or `%` in an id is %3B or %25)
    #[arg(long, value_name = "SKILL", value_parser = parse_skill)]
    skill: Vec<Skill>,
    /// Streaming must be on
    #[arg(long)]
    streaming: bool,
    /// Push notifications must be on
    #[arg(long)]
    push_notifications: bool,
    /// The extended card must be on
    #[arg(long)]
    extended_card: bool,
    /// The URI of an extension; repeatable
    #[arg(long, value_name = "URI")]
    extension: Vec<String>,
    /// The content digest that the card must have
    #[arg(long, value_name = "DIGEST", value_parser = tagged)]
    pin: Option<String>,
    /// The skill fingerprint that it must have
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint)]
    pin_skills: Option<String>,
    /// The negotiation fingerprint that it must have
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint)]
    pin_negotiation: Option<String>,
    /// How long ago the agent itself may have been confirmed last
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_origin_age: Option<String>,
}

impl Conditions {
    fn add_to(&self, query: &mut Query) {
        query.set_some("min_revision", self.min_revision);
        query.set_some("min_version", self.min_version.as_ref());
        for skill in &self.skill {
            query.skill(skill);
        }
        query.set_if("streaming", self.streaming);
        query.set_if("push_notifications", self.push_notifications);
        query.set_if("extended_card", self.extended_card);
        for uri in &self.extension {
            query.set("extension", uri);
        }
        query.set_some("pin", self.pin.as_ref());
        query.set_some("pin_skills", self.pin_skills.as_ref());
        query.set_some("pin_negotiation", self.pin_negotiation.as_ref());
        query.set_some("max_origin_age", self.max_origin_age.as_ref());
    }
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let mut query = args.standing.query();
    args.conditions.add_to(&mut query);
    query.set_some("known", args.known.as_ref());
    query.set_some("at", args.at);
    if args.card && args.at.is_none() {
        let path = format!("/agents/{}/.well-known/agent-card.json", args.agent);
        let answer = client.read(Request::get(&path, &query)).await?;
        return raw_card(&answer, printer);
    }
    let answer = client.read(Request::get(&agent_path(&args.agent), &query)).await?;
    if args.card {
        return past_card(&answer, printer);
    }
    if answer.status == StatusCode::NOT_MODIFIED {
        not_modified(&args.agent, &answer, printer)?;
    } else if printer.is_json() {
        printer.json(&answer.body)?;
    } else {
        print(&answer, printer)?;
    }
    Ok(Exit::Done)
}

/// The card alone. It is checked against its tag: bytes that are not the card's are not handed on.
fn raw_card(answer: &Answer, printer: &mut Printer) -> Result<Exit, Failure> {
    let tag = answer.header("etag").map(|tag| tag.trim_matches('"').parse::<Digest>());
    match tag {
        Some(Ok(digest)) if digest == Digest::of(&answer.body) => {
            printer.raw(&answer.body)?;
            Ok(Exit::Done)
        }
        _ => Err(failed("the bytes that came do not have the digest in their ETag")),
    }
}

/// The card of the past, as the envelope holds it.
fn past_card(answer: &Answer, printer: &mut Printer) -> Result<Exit, Failure> {
    let envelope: Envelope = answer.read()?;
    let Some(card) = envelope.card else { return Err(failed("the registry left the card out")) };
    let bytes = card.get().as_bytes();
    printer.raw(bytes)?;
    if Digest::of(bytes).tagged() != envelope.raw_digest {
        printer.note("the white space around the card is not part of this answer, so its raw digest differs");
    }
    Ok(Exit::Done)
}

/// The card that the caller holds is still current.
fn not_modified(agent: &AgentName, answer: &Answer, printer: &mut Printer) -> Result<(), Failure> {
    let header = |name| answer.header(name).unwrap_or("unknown");
    let (revision, position) = (header("cardfence-revision"), header("cardfence-position"));
    let staleness: Option<u64> = header("cardfence-staleness-ms").parse().ok();
    if printer.is_json() {
        let told = serde_json::json!({
            "agent": agent.as_str(),
            "not_modified": true,
            "revision": revision.parse::<u64>().ok(),
            "freshness": {"position": position, "staleness_ms": staleness},
        });
        return Ok(printer.json(told.to_string().as_bytes())?);
    }
    let age = match staleness {
        Some(millis) => {
            let bound = std::time::Duration::from_millis(millis).saturating_add(answer.elapsed);
            format!("at most {} old", words::duration(bound))
        }
        None => "of unknown age".to_owned(),
    };
    Ok(printer.line(format_args!(
        "not modified: {agent} is at revision {revision}; {age}, at position {position}"
    ))?)
}

fn print(answer: &Answer, printer: &mut Printer) -> Result<(), Failure> {
    let envelope: Envelope = answer.read()?;
    let paint = printer.paint();
    let version = one_line(envelope.card_version.as_deref().unwrap_or("unknown"));
    printer.line(format_args!(
        "{}  revision {}  {}",
        paint.text(Style::Strong, &envelope.agent),
        envelope.revision,
        paint.text(Style::Quiet, format_args!("card version {version}, generation {}", envelope.generation)),
    ))?;
    printer.line("")?;
    if let Some(card) = &envelope.card {
        let bytes = Bytes::copy_from_slice(card.get().as_bytes());
        // The registry has checked it; another version may have accepted what this one refuses.
        if let Ok(card) = Card::check(bytes, &Limits::KEPT) {
            printer.sheet(&offers(&card))?;
            printer.line("")?;
        }
    }
    let mut sheet = Sheet::bare().indented(2);
    sheet.pair("content digest", &envelope.content_digest);
    sheet.pair("raw digest", &envelope.raw_digest);
    sheet.pair("skill fingerprint", &envelope.skill_fingerprint);
    sheet.pair("negotiation fingerprint", &envelope.negotiation_fingerprint);
    sheet.pair("position", &envelope.position);
    let registered = words::moment(&envelope.registered_at);
    sheet.pair("registered", format_args!("{registered} by {}", envelope.registered_by));
    if let Some(confirmed) = &envelope.freshness.origin_confirmed_at {
        sheet.pair("origin confirmed", words::moment(confirmed));
    }
    if let Some(lease) = words::lease(&envelope.freshness) {
        sheet.pair("lease", lease);
    }
    printer.sheet(&sheet)?;
    printer.line("")?;
    Ok(printer.line(words::freshness(&envelope.freshness, answer.elapsed))?)
}

/// What a caller would use: where, which skills, with which modes.
pub(super) fn offers(card: &Card) -> Sheet {
    let mut sheet = Sheet::bare().indented(2);
    let normal = card.normal();
    for interface in &normal.interfaces {
        let spoken = format!("{} {}", interface.binding, interface.version);
        sheet.row([
            ("endpoint", Style::Quiet),
            (&interface.url, Style::Accent),
            (spoken.trim(), Style::Plain),
        ]);
    }
    for skill in &normal.skills {
        let modes = format!("{} → {}", modes(&skill.effective_input), modes(&skill.effective_output));
        sheet.row([("skill", Style::Quiet), (&skill.id, Style::Accent), (&modes, Style::Plain)]);
    }
    let switches = [
        (normal.capabilities.streaming, "streaming"),
        (normal.capabilities.push_notifications, "push notifications"),
        (normal.capabilities.extended_card, "extended card"),
    ];
    let on: Vec<&str> = switches.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    if !on.is_empty() {
        sheet.row([("offers", Style::Quiet), (&on.join(", "), Style::Plain), ("", Style::Plain)]);
    }
    for extension in &normal.extensions {
        let required = if extension.required { "required" } else { "" };
        sheet.row([("extension", Style::Quiet), (&extension.uri, Style::Accent), (required, Style::Warn)]);
    }
    sheet
}

fn modes(modes: &[Box<str>]) -> String {
    if modes.is_empty() { "no modes".to_owned() } else { modes.join(", ") }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
        /// Of the whole command line.
        #[arg(long)]
        json: bool,
    }

    #[test]
    fn every_condition_goes_into_the_query() {
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let line = format!(
            "x acme/a --max-staleness 0 --at-least 3.9f86d081884c7d65 --wait 2s --min-revision 7 --min-version 1.2 \
             --skill s;out=text/markdown --streaming --push-notifications --extended-card --extension urn:x \
             --pin {digest} --pin-skills sha256:{digest} --pin-negotiation {digest} --max-origin-age 1h"
        );
        let args = Only::try_parse_from(line.split_whitespace()).unwrap().args;
        let mut query = args.standing.query();
        args.conditions.add_to(&mut query);
        let expected = format!(
            "?max_staleness=0&at_least=3.9f86d081884c7d65&wait=2s&min_revision=7&min_version=1.2\
             &skill=s;out=text%2Fmarkdown&streaming=true&push_notifications=true&extended_card=true\
             &extension=urn%3Ax&pin=sha256%3A{digest}&pin_skills={digest}&pin_negotiation={digest}&max_origin_age=1h"
        );
        assert_eq!(query.to_string(), expected);
    }
}
