//! Agent bundles: a `.tar.gz` of the folder that describes an agent.
//!
//! Unpacked data stays in memory and within the limits below, whatever the bundle claims. Only plain files count;
//! nothing is written, followed or executed. The agent is the `config.yaml` in the bundle's top folder, or the only
//! YAML file there. As in the compatible API, `instructions` may name a file of the bundle, and `AGENTS.md` is the
//! fallback. Keys that are not read here tell that API's own server what to run; they are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tar::Archive;

use super::Error;
use super::agent::{Agent, AgentTool, tools};
use super::body::parse;
use super::gzip::{Refused, gunzip};
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
    gunzip(gz, MAX_UNPACKED).map_err(|why| match why {
        Refused::Broken(why) => refused(format!("the bundle is not a valid gzip file: {why}")),
        Refused::Large(limit) => refused(format!("the bundle has more than {limit} bytes when unpacked")),
    })
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
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, EntryType, Header};

    use super::*;

    const PLAIN: &str = "name: a\nprompt: Be terse.\nexecutor: {model: m}\n";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Paths are written verbatim, which the crate itself would refuse.
    fn append(archive: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, bytes: &[u8]) {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        archive.append(&header, bytes).unwrap();
    }

    fn packed(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (path, text) in files {
            append(&mut archive, EntryType::Regular, path, text.as_bytes());
        }
        gzip(&archive.into_inner().unwrap())
    }

    fn read(files: &[(&str, &str)]) -> Result<Agent, Error> {
        bundle(&packed(files))
    }

    fn with_executor(executor: &str) -> Result<Agent, Error> {
        read(&[("config.yaml", &format!("name: a\nexecutor: {executor}\n"))])
    }

    #[test]
    fn a_whole_bundle_is_read() {
        let yaml = "
spec_version: 1
name: weather
description: looks out of the window
prompt: |
  Be terse.
  Be right.
executor:
  harness: openai-agents
  model: gpt-5-mini
  profile: nobody
  auth: {type: api_key, api_key: sk-1, base_url: https://example.com/v1}
tools:
- type: function
  function: {name: look, description: out, parameters: {type: object, properties: {n: {type: integer}}}}
- {type: function, name: listen, tool_timeout_s: 5}
interaction: {conversational: true}
";
        let agent = read(&[("weather.yaml", yaml)]).unwrap();
        assert_eq!(
            (agent.name.as_str(), agent.model.as_deref(), agent.instructions.as_deref()),
            ("weather", Some("gpt-5-mini"), Some("Be terse.\nBe right.\n"))
        );
        let names: Vec<_> = agent.tools.iter().map(|tool| tool.0.name.as_str()).collect();
        assert_eq!((names, agent.tools[1].0.tool_timeout_s), (vec!["look", "listen"], Some(5)));
        let host = Host { api_key: Some("sk-1".into()), ..Host::at("https://example.com/v1") };
        assert_eq!(agent.provider, Some(Provider::OpenAiResponses(host)));
    }

    #[test]
    fn the_agent_is_found_where_people_put_it() {
        let other = "name: b\nexecutor: {model: m}\n";
        let bundles: [&[(&str, &str)]; 9] = [
            &[("config.yaml", PLAIN)],
            &[("./config.yaml", PLAIN)],
            &[(".//config.yml", PLAIN)],
            &[("agent/config.yaml", PLAIN), ("agent/tools/mcp/x.yaml", other)],
            &[("./agent/a.yml", PLAIN)],
            &[("a.yaml", PLAIN), ("agents/b/config.yaml", other), ("README.md", "x")],
            &[("config.yaml", PLAIN), ("b.yaml", other), ("agents/b/config.yaml", other)],
            &[("config.yaml", PLAIN), ("._config.yaml", "\0"), ("._b.yaml", "\0")],
            &[("config.yaml", other), ("config.yaml", PLAIN)],
        ];
        for files in bundles {
            let agent = read(files).unwrap();
            assert_eq!(
                (agent.name.as_str(), agent.instructions.as_deref()),
                ("a", Some("Be terse.")),
                "{files:?}"
            );
            assert_eq!((agent.provider, agent.tools), (None, vec![]));
        }
        assert_eq!(read(&[("x/my.bot.yaml", "executor: {model: m}")]).unwrap().name, "my.bot");
    }

    #[test]
    fn a_long_path_is_read_and_an_endless_one_refused() {
        let long = |length: usize| {
            let mut archive = Builder::new(Vec::new());
            let mut header = Header::new_gnu();
            header.set_size(PLAIN.len() as u64);
            let path = format!("{}/config.yaml", "x".repeat(length));
            archive.append_data(&mut header, path, PLAIN.as_bytes()).unwrap();
            bundle(&gzip(&archive.into_inner().unwrap()))
        };
        assert_eq!(long(200).unwrap().name, "a");
        assert!(long(100_000).unwrap_err().message.contains("a path of 100012 bytes"));
    }

    #[test]
    fn instructions_are_a_text_or_a_file() {
        let told = |lines: &str| {
            let yaml = format!("{lines}\nexecutor: {{model: m}}");
            read(&[("a.yaml", &yaml), ("AGENTS.md", "agents"), ("docs/x.md", "x")]).unwrap().instructions.unwrap()
        };
        assert_eq!(told("prompt: p"), "p");
        assert_eq!(
            told("{instructions: i, prompt: p}".trim_matches(['{', '}']).replace(", ", "\n").as_str()),
            "i"
        );
        assert_eq!(told("instructions: docs/x.md"), "x");
        assert_eq!(told("instructions: ./docs/x.md"), "x");
        assert_eq!(told("instructions: ../docs/x.md"), "../docs/x.md");
        assert_eq!(told("description: d"), "agents");
        assert_eq!(with_executor("{model: m}").unwrap().instructions, None);
    }

    #[test]
    fn the_provider_is_what_auth_and_harness_say() {
        let key = |url: &str| Host { api_key: Some("k".into()), ..Host::at(url) };
        let url = "https://example.com/v1";
        let given = "api_key: k, base_url: 'https://example.com/v1'";
        let cases = [
            (format!("{{model: m, auth: {{{given}}}}}"), Provider::OpenAiResponses(key(url))),
            (format!("{{model: m, harness: codex, auth: {{{given}}}}}"), Provider::OpenAiResponses(key(url))),
            (format!("{{model: m, harness: claude-sdk, auth: {{{given}}}}}"), Provider::Anthropic(key(url))),
            (format!("{{model: m, harness: chat, auth: {{{given}}}}}"), Provider::OpenAiChat(key(url))),
            (format!("{{model: m, auth: {{type: openai-chat, {given}}}}}"), Provider::OpenAiChat(key(url))),
            (format!("{{model: m, auth: {{type: anthropic, {given}}}}}"), Provider::Anthropic(key(url))),
            (
                format!("{{model: m, harness: claude-sdk, auth: {{type: openai-responses, {given}}}}}"),
                Provider::OpenAiResponses(key(url)),
            ),
            (
                "{model: m, harness: claude-sdk, auth: {api_key: k, base_url: 'https://example.com/'}}".into(),
                Provider::Anthropic(key(url)),
            ),
            ("{model: m, auth: {type: api_key, api_key: k}}".into(), Provider::OpenAiResponses(key(OPENAI))),
            ("{model: m, harness: claude-sdk, auth: {api_key: k}}".into(), Provider::Anthropic(key(ANTHROPIC))),
            (
                "{model: m, auth: {base_url: 'https://example.com/v1', api_key: ''}}".into(),
                Provider::OpenAiResponses(Host::at(url)),
            ),
        ];
        for (executor, provider) in cases {
            assert_eq!(with_executor(&executor).unwrap().provider, Some(provider), "{executor}");
        }
        for executor in
            ["{model: m, harness: claude-sdk}", "{model: m, auth: }", "{model: m, auth: {type: databricks}}"]
        {
            assert_eq!(with_executor(executor).unwrap().provider, None, "{executor}");
        }
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let yaml = |text: &str| packed(&[("config.yaml", text)]);
        let tar = |path: &str| packed(&[(path, PLAIN)]);
        let whole = packed(&[("config.yaml", PLAIN)]);
        let tools = |list: &str| yaml(&format!("{PLAIN}tools: {list}\n"));
        let cases = [
            (b"".to_vec(), "bundle", "gzip"),
            (b"name: a".to_vec(), "bundle", "gzip"),
            (whole[..whole.len() / 2].to_vec(), "bundle", "gzip"),
            (gzip(&[7; 2000]), "bundle", "tar"),
            (gzip(b""), "bundle", "no config.yaml"),
            (tar("readme.md"), "bundle", "no config.yaml"),
            (tar("a/b/config.yaml"), "bundle", "no config.yaml"),
            (packed(&[("a.yaml", PLAIN), ("b.yml", PLAIN)]), "bundle", "a.yaml or b.yml"),
            (tar("/config.yaml"), "bundle", "leads out"),
            (tar("../config.yaml"), "bundle", "leads out"),
            (tar("a/../config.yaml"), "bundle", "leads out"),
            (yaml("- a"), "bundle", "mapping"),
            (yaml(""), "bundle", "mapping"),
            (yaml("a: [1"), "bundle", "config.yaml: not valid YAML"),
            (yaml("a: *b"), "bundle", "config.yaml: not valid YAML"),
            (yaml("name: [1]"), "bundle.name", "string"),
            (yaml("name: ''\nexecutor: {model: m}"), "bundle.name", "name"),
            (yaml("name: a"), "bundle.model", "model"),
            (yaml("executor: gpt"), "bundle.executor", "Executor"),
            (yaml("executor: {auth: {api_key: [x]}}"), "bundle.executor.auth.api_key", "string"),
            (yaml("executor: {model: m, auth: {base_url: nowhere}}"), "bundle.provider.base_url", "URL"),
            (tools("{builtins: [web_search]}"), "bundle.tools.builtins", "runtime client"),
            (tools("look"), "bundle.tools", "list"),
            (tools("[web_search]"), "bundle.tools[0].type", "function"),
            (tools("[{type: mcp}]"), "bundle.tools[0].type", "function"),
        ];
        for (gz, param, what) in cases {
            let error = bundle(&gz).unwrap_err();
            assert_eq!(error.code, super::super::Code::InvalidInput);
            assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
            assert!(error.message.contains(what), "{what}: {}", error.message);
        }
        let binary = bundle(&{
            let mut archive = Builder::new(Vec::new());
            append(&mut archive, EntryType::Regular, "config.yaml", &[0xff, 0xfe, b'a']);
            gzip(&archive.into_inner().unwrap())
        });
        assert!(binary.unwrap_err().message.contains("UTF-8"));
    }

    #[test]
    fn links_and_devices_are_nothing() {
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Char,
            EntryType::Block,
            EntryType::Fifo,
            EntryType::Directory,
            EntryType::XGlobalHeader,
        ] {
            let mut archive = Builder::new(Vec::new());
            append(&mut archive, kind, "config.yaml", b"");
            let archived = archive.get_ref().clone();
            assert!(bundle(&gzip(&archived)).unwrap_err().message.contains("no config.yaml"), "{kind:?}");
            append(&mut archive, EntryType::Regular, "a.yaml", PLAIN.as_bytes());
            assert_eq!(bundle(&gzip(&archive.into_inner().unwrap())).unwrap().name, "a", "{kind:?}");
        }
    }

    #[test]
    fn a_bundle_that_lies_about_sizes_is_refused() {
        for kind in [EntryType::Regular, EntryType::GNUSparse, EntryType::GNULongName, EntryType::XHeader] {
            for size in [PLAIN.len() as u64 + 5000, 1 << 40, u64::MAX >> 1, u64::MAX] {
                let mut header = Header::new_gnu();
                header.as_old_mut().name[..11].copy_from_slice(b"config.yaml");
                header.set_entry_type(kind);
                header.set_size(size);
                header.set_cksum();
                let mut tar = header.as_bytes().to_vec();
                tar.extend_from_slice(PLAIN.as_bytes());
                let error = bundle(&gzip(&tar)).unwrap_err();
                assert_eq!(error.param.as_deref(), Some("bundle"), "{kind:?} {size}: {}", error.message);
            }
        }
    }

    #[test]
    fn limits_hold() {
        let mut archive = Builder::new(Vec::new());
        append(&mut archive, EntryType::Regular, "config.yaml", PLAIN.as_bytes());
        for _ in 1..MAX_ENTRIES {
            append(&mut archive, EntryType::Regular, "x", b"");
        }
        assert!(bundle(&gzip(archive.get_ref())).is_ok());
        append(&mut archive, EntryType::Directory, "y", b"");
        assert!(bundle(&gzip(archive.get_ref())).unwrap_err().message.contains("more than 1000 entries"));

        let padded = |size: usize| format!("{PLAIN}# {}", "x".repeat(size - PLAIN.len() - 2));
        assert!(read(&[("config.yaml", &padded(MAX_YAML))]).is_ok());
        let error = read(&[("config.yaml", &padded(MAX_YAML + 1))]).unwrap_err();
        assert!(error.message.contains("1048577 bytes"), "{}", error.message);

        let mut full = packed(&[("config.yaml", PLAIN)]);
        let unpacked = inflated(&full).unwrap().len();
        full.extend(gzip(&vec![0; MAX_UNPACKED - unpacked]));
        assert!(bundle(&full).is_ok(), "two members of exactly the limit");
        full.extend(gzip(b"x"));
        assert!(bundle(&full).unwrap_err().message.contains("more than 8388608 bytes"));
    }

    #[test]
    fn a_bomb_is_not_unpacked_beyond_the_limit() {
        let bomb = gzip(&vec![0; 8 * MAX_UNPACKED]);
        assert!(bomb.len() < MAX_UNPACKED / 100);
        assert!(bundle(&bomb).unwrap_err().message.contains("more than"));
        let just = inflated(&gzip(&vec![0; MAX_UNPACKED])).unwrap();
        assert!(just.len() == MAX_UNPACKED && just.capacity() <= 2 * MAX_UNPACKED);
    }

    #[test]
    fn no_cut_and_no_flipped_bit_gives_another_agent() {
        let whole = packed(&[("config.yaml", PLAIN)]);
        let tar = inflated(&whole).unwrap();
        let agent = bundle(&whole).unwrap();
        let content = tar.windows(PLAIN.len()).position(|part| part == PLAIN.as_bytes()).unwrap();
        let mut refused = 0;
        for n in 0..tar.len().min(1024) {
            if n < content + PLAIN.len() {
                assert!(bundle(&gzip(&tar[..n])).is_err(), "cut at {n}");
            }
            for bit in [0, 3, 7] {
                let mut broken = tar.clone();
                broken[n] ^= 1 << bit;
                // Of a file's own text every bit may say something else; of its header none may.
                match bundle(&gzip(&broken)) {
                    Ok(read) if n < content => assert_eq!(read, agent, "bit {bit} of byte {n}"),
                    Ok(_) => {}
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 1000, "only {refused} were refused");
        for n in 0..whole.len() {
            assert!(bundle(&whole[..n]).is_err(), "cut at {n}");
        }
    }
}
