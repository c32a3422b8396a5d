//! Agent bundles: a `.tar.gz` of the folder that describes an agent.
//!
//! Unpacked data stays in memory and within the limits below, whatever the bundle claims. Only plain files count;
//! nothing is written, followed or executed. The agent is the `config.yaml` in the bundle's top folder, or the only
//! YAML file there. As in the compatible API, `instructions` may name a file of the bundle, and `AGENTS.md` is the
//! fallback. Keys that are not read here tell that API's own server what to run; they are ignored.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;
use tar::Archive;

use super::Error;
use super::agent::{Agent, AgentTool, tools};
use super::body::parse;
use super::yaml::yaml;
use crate::provider::{Host, Provider};

/// The limit of an unpacked bundle, in bytes.
const MAX_UNPACKED: usize = 8 * 1024 * 1024;
/// The limit of files, folders and links in a bundle.
const MAX_ENTRIES: usize = 1000;
/// The limit of the YAML, in bytes.
const MAX_YAML: usize = 1024 * 1024;
/// The limit of a path, in bytes.
const MAX_PATH: usize = 1024;
/// OpenAI's API.
const OPENAI: &str = "https://api.openai.com/v1";
/// Anthropic's API.
const ANTHROPIC: &str = "https://api.anthropic.com/v1";

/// A bundle's plain files by path.
type Files<'a> = BTreeMap<String, &'a [u8]>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    name: Option<String>,
    instructions: Option<String>,
    prompt: Option<String>,
    executor: Option<Executor>,
    tools: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Executor {
    model: Option<String>,
    harness: Option<String>,
    auth: Option<Auth>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    r#type: Option<String>,
    api_key: Option<String>,
    base_url: Option<String>,
}

/// Reads a bundle. The caller limits its size and decides which hosts its provider may have.
///
/// `tools` is a list of client-side functions, or a mapping of them by name. Tools the compatible API's server would
/// run are rejected: an agent that silently lacks its tools would be worse than none.
pub fn bundle(gz: &[u8]) -> Result<Agent, Error> {
    let tar = inflated(gz)?;
    let files = top(unpacked(&tar)?);
    let (file, text) = config_file(&files)?;
    let config = config(file, text)?;
    let executor = config.executor.unwrap_or_default();
    let tools = match config.tools {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => tools(&listed(list)?, "bundle.tools")?.into_iter().map(AgentTool).collect(),
    };
    let agent = Agent {
        instructions: instructions(config.instructions.or(config.prompt), &files)?,
        model: executor.model,
        provider: provider(executor.auth.unwrap_or_default(), executor.harness.as_deref()),
        tools,
        ..Agent::named(config.name.unwrap_or_else(|| stem(file).to_string()))
    };
    agent.check("bundle")?;
    Ok(agent)
}

/// Tools as a list. The compatible API's own form is a mapping by name; tools its server would run are rejected.
fn listed(tools: Value) -> Result<Value, Error> {
    let Value::Object(map) = tools else { return Ok(tools) };
    let named = |(name, mut tool): (String, Value)| match tool.as_object_mut() {
        Some(fields) if fields.get("runtime").is_some_and(|runtime| runtime == "client") => {
            fields.insert("name".into(), name.into());
            fields.entry("type").or_insert_with(|| "function".into());
            Ok(tool)
        }
        _ => Err(Error::invalid(format!("bundle.tools.{name}"), "only tools with runtime client are supported")),
    };
    map.into_iter().map(named).collect()
}

fn refused(message: impl Into<String>) -> Error {
    Error::invalid("bundle", message)
}

fn inflated(gz: &[u8]) -> Result<Vec<u8>, Error> {
    let mut tar = Vec::new();
    // The platform's `DecompressionStream` has no limit: it holds all that a small file inflates to.
    let bounded = MultiGzDecoder::new(gz).take(MAX_UNPACKED as u64 + 1).read_to_end(&mut tar);
    bounded.map_err(|e| refused(format!("the bundle is not a valid gzip file: {e}")))?;
    if tar.len() > MAX_UNPACKED {
        return Err(refused(format!("the bundle has more than {MAX_UNPACKED} bytes when unpacked")));
    }
    Ok(tar)
}

/// An archive's files. Of two with the same path the later one wins, as in `tar`.
fn unpacked(tar: &[u8]) -> Result<Files<'_>, Error> {
    let broken = |e| refused(format!("the bundle is not a valid tar archive: {e}"));
    let mut archive = Archive::new(tar);
    let mut files = Files::new();
    for (n, entry) in archive.entries().map_err(broken)?.enumerate() {
        if n == MAX_ENTRIES {
            return Err(refused(format!("the bundle has more than {MAX_ENTRIES} entries")));
        }
        let entry = entry.map_err(broken)?;
        let path = path(&entry.path_bytes())?;
        let file = path.rsplit('/').next().unwrap_or_default();
        // macOS stores its metadata of `x` in `._x`.
        if !entry.header().entry_type().is_file() || file.starts_with("._") {
            continue;
        }
        let start = usize::try_from(entry.raw_file_position()).ok();
        let size = usize::try_from(entry.size()).ok();
        let span = start.zip(size).and_then(|(start, size)| tar.get(start..)?.get(..size));
        let Some(bytes) = span else {
            return Err(refused(format!("the bundle ends within {path}")));
        };
        files.insert(path, bytes);
    }
    Ok(files)
}

fn path(bytes: &[u8]) -> Result<String, Error> {
    if bytes.len() > MAX_PATH {
        return Err(refused(format!("the bundle has a path of {} bytes, the limit is {MAX_PATH}", bytes.len())));
    }
    let Ok(path) = str::from_utf8(bytes) else {
        return Err(refused("the bundle has a path that is not UTF-8"));
    };
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(refused(format!("the bundle has the path {path:?}, which leads out of it")));
    }
    Ok(path.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/"))
}

/// The files without their common top folder, if there is one.
fn top(files: Files<'_>) -> Files<'_> {
    let first = files.keys().next().and_then(|path| path.split_once('/'));
    let Some(folder) = first.map(|(folder, _)| format!("{folder}/")) else {
        return files;
    };
    let inside = |(path, bytes): (&String, &_)| Some((path.strip_prefix(&folder)?.to_string(), *bytes));
    files.iter().map(inside).collect::<Option<Files<'_>>>().unwrap_or(files)
}

fn config_file<'a>(files: &'a Files<'_>) -> Result<(&'a str, &'a [u8]), Error> {
    let is_yaml = |path: &str| !path.contains('/') && (path.ends_with(".yaml") || path.ends_with(".yml"));
    let found: Vec<_> = files.iter().filter(|(path, _)| is_yaml(path)).collect();
    let by_name = ["config.yaml", "config.yml"].iter().find_map(|name| files.get_key_value(*name));
    let (path, text) = match (by_name, found.as_slice()) {
        (Some(file), _) => file,
        (None, [file]) => *file,
        (None, []) => {
            return Err(refused("the bundle has no config.yaml or other YAML file in its top folder"));
        }
        (None, [first, second, ..]) => {
            let message = format!("the bundle has no config.yaml; is the agent {} or {}?", first.0, second.0);
            return Err(refused(message));
        }
    };
    if text.len() > MAX_YAML {
        return Err(refused(format!("{path} has {} bytes, the limit is {MAX_YAML}", text.len())));
    }
    Ok((path, text))
}

fn stem(file: &str) -> &str {
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}

fn config(file: &str, text: &[u8]) -> Result<Config, Error> {
    let text = str::from_utf8(text).map_err(|_| refused(format!("{file} is not UTF-8")))?;
    match yaml(text).map_err(|e| refused(format!("{file}: {e}")))? {
        Value::Object(object) => parse(object, "bundle"),
        _ => Err(refused(format!("{file} must be a mapping"))),
    }
}

/// The instructions: a text, or the bundle's file of that name.
fn instructions(given: Option<String>, files: &Files<'_>) -> Result<Option<String>, Error> {
    let path = given.as_deref().unwrap_or("AGENTS.md");
    match files.get_key_value(path.strip_prefix("./").unwrap_or(path)) {
        None => Ok(given),
        Some((path, bytes)) => match str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_string())),
            Err(_) => Err(refused(format!("{path} is not UTF-8"))),
        },
    }
}

/// The agent's provider: `auth` takes precedence over the harness. `None`: the deployment's default.
fn provider(auth: Auth, harness: Option<&str>) -> Option<Provider> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (base_url, api_key) = (given(auth.base_url), given(auth.api_key));
    if base_url.is_none() && api_key.is_none() {
        return None;
    }
    let make = [auth.r#type.as_deref(), harness].into_iter().flatten().find_map(dialect);
    let mut provider = make.unwrap_or(Provider::OpenAiResponses)(Host { api_key, ..Host::default() });
    let base_url = address(&provider, base_url);
    if let Some(host) = provider.host_mut() {
        host.base_url = base_url;
    }
    Some(provider)
}

fn dialect(word: &str) -> Option<fn(Host) -> Provider> {
    match word {
        "openai-responses" => Some(Provider::OpenAiResponses),
        "openai-chat" | "chat" => Some(Provider::OpenAiChat),
        "anthropic" => Some(Provider::Anthropic),
        _ if word.starts_with("claude") => Some(Provider::Anthropic),
        _ => None,
    }
}

fn address(provider: &Provider, base_url: Option<String>) -> String {
    let anthropic = matches!(provider, Provider::Anthropic(_));
    match base_url {
        None if anthropic => ANTHROPIC.into(),
        None => OPENAI.into(),
        // Anthropic's own clients, and so the compatible API's harness, expect no version in it.
        Some(url) if anthropic && !url.trim_end_matches('/').ends_with("/v1") => {
            format!("{}/v1", url.trim_end_matches('/'))
        }
        Some(url) => url,
    }
}

#[cfg(test)]
mod tests;
