//! The description says what the router does.

use std::collections::BTreeSet;

use http::Method;
use serde_json::Value;

use super::support::Server;
use crate::api::http::{operation, routes};

const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"];

#[tokio::test]
async fn every_route_is_described_and_every_description_is_routed() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    for route in routes::all() {
        let described = &paths[route.path][route.verb.methods()[0].to_lowercase()];
        assert_eq!(described["operationId"], route.operation);
        assert!(described["responses"]["default"].is_object());
    }
    for (template, item) in paths {
        let path = template.replace("{ns}", "acme").replace("{name}", "sum").replace("{n}", "1");
        let described: Vec<String> = item.as_object().unwrap().keys().map(|k| k.to_uppercase()).collect();
        for method in METHODS {
            let reply = server.send(method, &path, &[], b"").await;
            let is_described = described.iter().any(|d| d == method)
                || (method == "HEAD" && described.contains(&"GET".to_owned()));
            assert_eq!(reply.status != 405, is_described, "{method} {path}");
            assert_ne!(reply.reason(), "no_such_route", "{method} {path}");
            let name = operation(&Method::from_bytes(method.as_bytes()).unwrap(), &path);
            assert_eq!(name.is_some(), is_described, "{method} {path}");
            if !is_described {
                if method != "HEAD" {
                    assert_eq!(reply.reason(), "method_not_allowed", "{method} {path}");
                }
                let allow: BTreeSet<_> = reply.header("allow").split(", ").map(str::to_owned).collect();
                let mut wanted: BTreeSet<String> = described.iter().cloned().collect();
                if wanted.contains("GET") {
                    wanted.insert("HEAD".to_owned());
                }
                assert_eq!(allow, wanted, "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn every_parameter_that_is_described_is_taken_and_no_other() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json();
    for (template, item) in document["paths"].as_object().unwrap() {
        let path = template.replace("{ns}", "acme").replace("{name}", "sum").replace("{n}", "1");
        for (method, described) in item.as_object().unwrap() {
            let parameters = described["parameters"].as_array();
            for parameter in parameters.into_iter().flatten().filter(|p| p["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                let reply =
                    server.send(&method.to_uppercase(), &format!("{path}?{name}=%20"), &[], b"").await;
                assert!(!reply.text().contains("is not a parameter"), "{method} {path} {name}");
            }
            let reply = server.send(&method.to_uppercase(), &format!("{path}?nope=1"), &[], b"").await;
            assert_eq!(reply.reason(), "invalid_argument", "{method} {path}");
            assert!(reply.text().contains("`nope` is not a parameter here"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_reference_has_a_target() {
    fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    match value {
                        Value::String(text) if name == "$ref" => {
                            found.insert(text);
                        }
                        value => references(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 15, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn what_a_batch_takes_is_described_as_it_is_taken() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json();
    let fence = &document["components"]["schemas"]["Fence"]["properties"];
    assert_eq!(fence["pin"]["type"], "string", "a null is refused: {}", fence["pin"]);
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["BatchRequest"]["properties"]["wait"]["type"], "string");
    let types: BTreeSet<&str> = schemas["RevisionText"]["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|s| s["type"].as_str())
        .collect();
    assert_eq!(types, BTreeSet::from(["integer", "string"]));
    assert_eq!(
        fence["min_revision"]["$ref"], "#/components/schemas/RevisionText",
        "{}",
        fence["min_revision"]
    );
}
