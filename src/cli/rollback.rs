//! `cardfence rollback`: an earlier revision's bytes become a new revision.

use http::Method;

use super::arguments::{Expect, Server, Writing, agent_path, expect_current};
use super::client::Request;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::query::Query;
use super::written;
use crate::terms::AgentName;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    #[arg(value_name = "NS/NAME")]
    agent: AgentName,
    /// The revision whose card is to be current again
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
    to: u64,
    /// Refuse unless this is current: a revision (`7`, `7@<position>`) or a digest
    #[arg(long, value_name = "WHAT", value_parser = expect_current)]
    expect: Option<Expect>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let mut query = Query::default();
    query.set("to", args.to);
    Expect::add_to_query(args.expect.as_ref(), &mut query);
    args.writing.add_to(&mut query);
    let path = format!("{}/rollback", agent_path(&args.agent));
    let request = Expect::add_to(args.expect.as_ref(), Request::new(Method::POST, &path, &query));
    let request = request.patient(args.writing.patience());
    let answer = client.write(request, &args.writing.request_id(), printer).await?;
    written::print(&answer, printer)
}
