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
        assert_eq!((agent.name.as_str(), agent.instructions.as_deref()), ("a", Some("Be terse.")), "{files:?}");
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
    assert_eq!(told("{instructions: i, prompt: p}".trim_matches(['{', '}']).replace(", ", "\n").as_str()), "i");
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
