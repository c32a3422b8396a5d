//! The document that describes the API, held against the code: routes both ways, and bodies against their readers.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the document has failed")]

use std::collections::{BTreeMap, BTreeSet};

use layby::api::{self, AgentRecord, Code, Error, Route};
use layby::session::{AgentId, Seconds};
use serde_json::Value;
use syn::visit::Visit;

const METHODS: [&str; 4] = ["GET", "POST", "PATCH", "DELETE"];
/// Paths that are no part of the API.
const ASIDE: [&str; 1] = ["/"];

fn document() -> Value {
    serde_json::from_str(include_str!("../src/api/openapi.json")).unwrap()
}

#[test]
fn what_is_served_is_the_document() {
    assert_eq!(serde_json::from_str::<Value>(api::OPENAPI).unwrap(), document());
}

/// Each operation with its path and its method, in capitals.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            found.push((path.clone(), method.to_uppercase(), operation.clone()));
        }
    }
    assert!(found.len() > 20, "{} operations", found.len());
    found
}

/// Every object in the document.
fn objects<'a>(value: &'a Value, visit: &mut impl FnMut(&'a serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            visit(object);
            object.values().for_each(|value| objects(value, visit));
        }
        Value::Array(list) => list.iter().for_each(|value| objects(value, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn filled(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
}

/// The paths of all routes.
fn routes() -> Vec<String> {
    let all = Route::all("s", "o");
    assert_eq!(all.len(), variants(include_str!("../src/api/route.rs"), "Route"), "Route::all lacks a route");
    all.iter().map(|route| shape(route.pattern())).collect()
}

/// Number of variants of an enum in a source file.
fn variants(source: &str, name: &str) -> usize {
    let file = syn::parse_file(source).unwrap();
    let found = file.items.iter().find_map(|item| match item {
        syn::Item::Enum(item) if item.ident == name => Some(item.variants.len()),
        _ => None,
    });
    found.unwrap()
}

/// The string literals of a source file.
#[derive(Default)]
struct Literals(BTreeSet<String>);

impl Visit<'_> for Literals {
    fn visit_lit_str(&mut self, literal: &syn::LitStr) {
        self.0.insert(literal.value());
    }
}

/// A path without the names of its parameters.
fn shape(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect::<Vec<_>>().join("/")
}

#[test]
fn the_version_is_the_packages() {
    assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_reference_resolves_and_every_component_is_used() {
    let document = document();
    let mut used = BTreeSet::new();
    let mut check = |target: &str| {
        let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{target} is not in the document"));
        assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
        used.insert(pointer.to_string());
    };
    objects(&document, &mut |object| {
        if let Some(target) = object.get("$ref") {
            check(target.as_str().unwrap());
        }
        for target in object.get("mapping").and_then(Value::as_object).into_iter().flat_map(|map| map.values()) {
            check(target.as_str().unwrap());
        }
    });
    // Named, not referred to: what a path answers to a method that it does not have.
    used.insert("/components/responses/MethodNotAllowed".into());
    for (kind, components) in document["components"].as_object().unwrap() {
        for name in components.as_object().unwrap().keys().filter(|_| kind != "securitySchemes") {
            let pointer = format!("/components/{kind}/{name}");
            assert!(used.contains(&pointer), "{pointer} is not used");
        }
    }
}

#[test]
fn every_operation_says_what_it_is_and_what_it_answers() {
    let document = document();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{at} has no operationId"));
        assert!(ids.insert(id.to_string()), "there are two {id}");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{at} has no summary");
        let answers = operation["responses"].as_object().unwrap();
        assert!(answers.keys().any(|status| status.starts_with('2') || status == "101"), "{at} never succeeds");
        if path.starts_with("/v1/") {
            for status in ["401", "403", "429", "500", "503"] {
                assert!(answers.contains_key(status), "{at} lacks {status}");
            }
            let takes = operation["description"].as_str().is_some_and(|text| text.contains("Takes an API key"));
            assert!(takes, "{at} does not say who may ask");
            assert!(operation["security"].to_string().contains("apiKey"), "{at} takes no API key");
        } else {
            assert_eq!(operation["security"], serde_json::json!([]), "{at}");
        }
        let names: Vec<&str> =
            operation["parameters"].as_array().unwrap().iter().filter_map(|p| p["$ref"].as_str()).collect();
        let keyed = names.contains(&"#/components/parameters/IdempotencyKey");
        assert_eq!(keyed, method != "GET", "{at} and its Idempotency-Key");
        for part in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let declared = names.iter().any(|name| {
                let parameter = document.pointer(name.trim_start_matches('#')).unwrap();
                parameter["in"] == "path" && parameter["name"] == part
            });
            assert!(declared, "{at} does not declare {part}");
        }
    }
}

#[test]
fn what_is_described_is_there_and_what_is_there_is_described() {
    let document = document();
    let described: BTreeMap<String, BTreeSet<String>> =
        operations(&document).into_iter().fold(BTreeMap::new(), |mut all, (path, method, _)| {
            all.entry(path).or_default().insert(method);
            all
        });
    for (path, methods) in described.iter() {
        for method in METHODS {
            let known = Route::parse(method, &filled(path)).is_ok();
            assert_eq!(known, methods.contains(method), "{method} {path}");
        }
    }
    let shapes: BTreeSet<String> = described.keys().map(|path| shape(path)).collect();
    for route in routes().iter().filter(|route| !ASIDE.contains(&route.as_str())) {
        assert!(shapes.contains(route), "{route} is not described");
    }
}

/// Says whether it takes a body.
type Reader = fn(&str) -> Result<(), Error>;

/// What reads the body of an operation.
fn reader(operation: &str) -> Option<Reader> {
    Some(match operation {
        "createSession" => |body| api::create(body).map(drop),
        "patchSession" => |body| api::patch(body).map(drop),
        "forkSession" => |body| api::fork(body).map(drop),
        "postEvent" => |body| api::command(body).map(drop),
        "createAgent" => |body| api::new_agent(body).map(drop),
        "patchAgent" => |body| {
            let agent = api::new_agent(r#"{"name":"a","model":"m"}"#)?;
            let (created_at, updated_at) = (Seconds(1), Seconds(1));
            let record = AgentRecord { id: AgentId("ag_1".into()), version: 1, created_at, updated_at, agent };
            record.patched(body, Seconds(2)).map(drop)
        },
        "createToken" => |body| {
            let session = layby::session::SessionId("sess_1".into());
            api::Claims::asked(body, &api::Tenant::open(), &session, Seconds(1)).map(drop)
        },
        _ => return None,
    })
}

fn examples(media: &Value) -> Vec<Value> {
    let many = media["examples"].as_object().into_iter().flat_map(|map| map.values());
    media.get("example").cloned().into_iter().chain(many.map(|example| example["value"].clone())).collect()
}

#[test]
fn every_example_of_a_body_is_accepted() {
    let document = document();
    for (path, method, operation) in operations(&document) {
        let media = &operation["requestBody"]["content"]["application/json"];
        if media.is_null() {
            continue;
        }
        let id = operation["operationId"].as_str().unwrap();
        let read = reader(id).unwrap_or_else(|| panic!("nothing reads the body of {id}"));
        let examples = examples(media);
        assert!(!examples.is_empty(), "{method} {path} has no example");
        for example in examples {
            if let Err(error) = read(&example.to_string()) {
                panic!("{method} {path}: {}: {example}", error.message);
            }
        }
    }
}

/// A schema, through its references.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(target) => resolved(document, document.pointer(target.trim_start_matches('#')).unwrap()),
        None => schema,
    }
}

#[test]
fn bodies_are_closed_where_their_readers_are() {
    let document = document();
    for (path, _, operation) in operations(&document) {
        let media = &operation["requestBody"]["content"]["application/json"];
        if media.is_null() {
            continue;
        }
        let read = reader(operation["operationId"].as_str().unwrap()).unwrap();
        for mut example in examples(media) {
            for key in ["runner_id", "host_id", "workspace", "git", "metadata", "harness"] {
                example[key] = Value::Null;
                assert!(read(&example.to_string()).is_ok(), "{path} refuses {key}");
            }
            example["typo"] = Value::from(7);
            assert!(read(&example.to_string()).is_err(), "{path} takes any key");
        }
        let schema = resolved(&document, &media["schema"]);
        let forms = schema["oneOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
        for form in &forms {
            let form = resolved(&document, form);
            assert_eq!(form["additionalProperties"], false, "{path}");
            for (key, ignored) in form["properties"].as_object().unwrap() {
                if ignored["$ref"] == "#/components/schemas/Ignored" {
                    let mut example = examples(media).remove(0);
                    example[key] = Value::from(7);
                    assert!(read(&example.to_string()).is_ok(), "{path} refuses {key}");
                }
            }
        }
    }
}

#[test]
fn the_document_has_the_codes_that_there_are() {
    let document = document();
    let codes = &document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"];
    let described: BTreeSet<&str> = codes.as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect();
    let known: BTreeSet<&str> = Code::ALL.iter().map(|code| code.wire().1).collect();
    assert_eq!(known.len(), variants(include_str!("../src/api/error.rs"), "Code"), "Code::ALL lacks a code");
    assert_eq!(described, known);
}

#[test]
fn the_document_has_the_events_that_are_sent() {
    let document = document();
    let events = document["components"]["schemas"]["StreamEvent"]["discriminator"]["mapping"].as_object().unwrap();
    let described: BTreeSet<&str> = events.keys().map(String::as_str).collect();
    let mut literals = Literals::default();
    literals.visit_file(&syn::parse_file(include_str!("../src/api/stream/native.rs")).unwrap());
    let event = |word: &&str| word.starts_with("response.") || word.starts_with("session.");
    let mut sent: BTreeSet<&str> = literals.0.iter().map(String::as_str).filter(event).collect();
    sent.insert("session.heartbeat"); // the worker sends it
    assert_eq!(described, sent);
}
