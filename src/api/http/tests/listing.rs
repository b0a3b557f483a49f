//! Lists and search.

use super::support::{CARD, Server, card_with};
use crate::wire;

async fn names(server: &Server, query: &str) -> Vec<String> {
    let reply = server.get(&format!("/v1/agents{query}")).await;
    assert_eq!(reply.status, 200, "{query}: {}", reply.text());
    let list: wire::List<wire::AgentItem> = serde_json::from_slice(&reply.body).unwrap();
    assert!(list.items.iter().all(|item| item.card.is_none() && !item.card_omitted));
    list.items.into_iter().map(|item| item.agent).collect()
}

async fn fleet(server: &Server) {
    server.put("acme/sum", CARD).await;
    server.put("acme/talk", &card_with("Sums up", "Talks ÄRGER")).await;
    let plain = card_with("\"streaming\": true", "\"streaming\": false");
    server.put("beta/sum", &plain).await;
    server.put("beta/gone", CARD).await;
    server.send("DELETE", "/v1/agents/beta/gone", &[], b"").await;
}

#[tokio::test]
async fn filters_are_anded_and_lists_hold_live_agents_in_order() {
    let server = Server::start().await;
    fleet(&server).await;
    let all = ["acme/sum", "acme/talk", "beta/sum"];
    for (query, wanted) in [
        ("", &all[..]),
        ("?namespace=acme", &all[..2]),
        ("?namespace=none", &[]),
        ("?skill=sum%3Bup", &all),
        ("?skill=sum", &[]),
        ("?tag=talk", &all),
        ("?mode=audio/*", &[]),
        ("?mode=AUDIO/wav", &all),
        ("?capability=streaming", &all[..2]),
        ("?capability=push_notifications", &[]),
        ("?capability=urn:x:one", &all),
        ("?url=https://a.example/a2a", &all),
        ("?url=https://a.example", &[]),
        ("?q=%C3%A4rger", &all[1..2]),
        ("?q=SUMS&namespace=beta", &all[2..]),
        ("?capability=streaming&namespace=beta", &[]),
    ] {
        assert_eq!(names(&server, query).await, wanted, "{query}");
    }
}

#[tokio::test]
async fn a_page_past_three_mebibytes_is_shorter_and_goes_on() {
    let server = Server::start().await;
    // Each revision replaces all skills, so that its change is long.
    for n in 0..80 {
        server.put("beta/one", replaced(n).as_bytes()).await;
    }
    let wanted: Vec<String> = (1..=80).rev().map(|n| n.to_string()).collect();
    assert_eq!(all(&server, "/v1/agents/beta/one/revisions?page_size=100", "revision").await, wanted);
}

/// A card whose skills no other one has.
fn replaced(n: usize) -> String {
    let id = |skill: usize| {
        format!(r#"{{"id":"{n}-{skill}-{}","name":"S","description":"d","tags":[]}}"#, "i".repeat(200))
    };
    let skills: Vec<String> = (0..200).map(id).collect();
    format!(
        r#"{{"name":"One","description":"d","version":"1","supportedInterfaces":[{{"url":"https://one.example.com","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],"capabilities":{{}},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{}]}}"#,
        skills.join(",")
    )
}

/// The member of every item, page by page; more than one page is expected.
async fn all(server: &Server, path: &str, member: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut token = String::new();
    for page in 0.. {
        let separator = if path.contains('?') { '&' } else { '?' };
        let next = if token.is_empty() { String::new() } else { format!("{separator}page_token={token}") };
        let reply = server.get(&format!("{path}{next}")).await;
        assert_eq!(reply.status, 200, "{:.300}", reply.text());
        assert!(reply.body.len() <= 3 * 1024 * 1024, "{}", reply.body.len());
        let list = reply.json();
        let items = list["items"].as_array().unwrap();
        assert!(!items.is_empty());
        found.extend(items.iter().map(|item| item[member].to_string().trim_matches('"').to_owned()));
        match list["next_page_token"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => {
                assert!(page > 0 && list["complete"] == true);
                break;
            }
        }
    }
    found
}

#[tokio::test]
async fn pages_go_on_after_the_last_and_say_whether_they_are_complete() {
    let server = Server::start().await;
    fleet(&server).await;
    let first = server.get("/v1/agents?page_size=2").await;
    assert_eq!(
        (first.json()["items"].as_array().unwrap().len(), &first.json()["complete"]),
        (2, &false.into())
    );
    assert_ne!(first.header("cardfence-position"), "");
    assert!(first.json()["items"][0]["freshness"]["origin_confirmed_at"].is_string());
    let token = first.json()["next_page_token"].as_str().unwrap().to_owned();
    let rest = server.get(&format!("/v1/agents?page_size=2&page_token={token}")).await.json();
    assert_eq!((&rest["items"][0]["agent"], &rest["complete"]), (&"beta/sum".into(), &true.into()));
    assert!(rest["next_page_token"].is_null());
    let other = server.get(&format!("/v1/agents?namespace=acme&page_token={token}")).await;
    assert_eq!(other.reason(), "invalid_argument");
    assert_eq!(names(&server, "?page_size=99999999999999").await.len(), 3, "more is cut");
}
