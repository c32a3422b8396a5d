//! The fence between the rings: what the sources of each may name. Reads the sources, needs nothing else.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

mod modules;

use std::fs;
use std::path::{Path, PathBuf};

/// The sources in a folder, or the one file.
fn sources(path: &str) -> Vec<(PathBuf, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if path.is_file() {
        let text = fs::read_to_string(&path).unwrap();
        return vec![(path, text)];
    }
    let mut found = Vec::new();
    let mut folders = vec![path.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {}", path.display());
    found
}

/// The code of a file: without comments and without its tests.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.ends_with("tests.rs")
        || path.ends_with("fixtures.rs")
}

fn forbid(folders: &[&str], words: &[&str]) {
    for folder in folders {
        for (path, text) in sources(folder) {
            if is_test(&path) {
                continue;
            }
            for word in words {
                let found = code(&text).lines().position(|line| line.contains(word));
                assert!(found.is_none(), "{} names `{word}`, which its ring must not", path.display());
            }
        }
    }
}

#[test]
fn the_platform_is_named_in_the_runtime_alone() {
    let words = ["worker::", "js_sys", "web_sys", "wasm_bindgen"];
    let pure =
        ["session", "sse", "json.rs", "provider", "api", "config.rs", "web"].map(|folder| format!("src/{folder}"));
    forbid(&pure.each_ref().map(String::as_str), &words);
}

#[test]
fn the_inner_rings_are_synchronous_and_deterministic() {
    let words = [
        "async ",
        ".await",
        "SystemTime",
        "Instant",
        "Date::now",
        "getrandom",
        "std::fs",
        "std::net",
        "std::thread",
        "println!",
    ];
    forbid(&["src/session", "src/sse", "src/json.rs", "src/provider", "src/api"], &words);
}

#[test]
fn only_the_clock_asks_for_time_and_randomness() {
    for (path, text) in sources("src/runtime") {
        let asks = ["Date::now", "getrandom", "Uuid::", "uuid::"].iter().any(|word| code(&text).contains(word));
        assert!(!asks || path.ends_with("clock.rs"), "{} asks for time or randomness itself", path.display());
    }
}

#[test]
fn no_file_grows_beyond_five_hundred_lines() {
    for (path, text) in sources("src") {
        let lines = code(&text).lines().count();
        assert!(is_test(&path) || lines <= 500, "{} has {lines} lines", path.display());
    }
}
