//! Which module names which: what a facade re-exports counts as named in the module that defines it.

#![expect(clippy::indexing_slicing, reason = "places are those of modules that were read")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};

use super::{is_test, sources};

/// A module's place in the crate, or the place of anything in it: `["session", "log", "Entry"]`.
type Place = Vec<String>;

/// What one file says, with names as it spells them.
#[derive(Default)]
struct Names {
    /// What it imports: the local name, and the place as it is spelled.
    imports: BTreeMap<String, Place>,
    /// What it re-exports, likewise.
    exports: BTreeMap<String, Place>,
    /// Every other path.
    paths: BTreeSet<Place>,
}

impl Names {
    fn import(tree: &syn::UseTree, mut at: Place, to: &mut BTreeMap<String, Place>) {
        match tree {
            syn::UseTree::Path(path) => {
                at.push(path.ident.to_string());
                Self::import(&path.tree, at, to);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| Self::import(tree, at.clone(), to));
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                to.insert(at.last().unwrap().clone(), at);
            }
            syn::UseTree::Name(name) => {
                at.push(name.ident.to_string());
                to.insert(name.ident.to_string(), at);
            }
            syn::UseTree::Rename(rename) => {
                at.push(rename.ident.to_string());
                to.insert(rename.rename.to_string(), at);
            }
            syn::UseTree::Glob(_) => {
                at.push("*".into());
                to.insert(at.join("::"), at);
            }
        }
    }
}

fn only_in_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        matches!(&attribute.meta, syn::Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !only_in_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = matches!(item.vis, syn::Visibility::Public(_));
        let to = if public { &mut self.exports } else { &mut self.imports };
        if public || !only_in_tests(&item.attrs) {
            Self::import(&item.tree, Vec::new(), to);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// The arguments of a macro are not syntax yet, but their words and colons tell the paths.
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let text = item.tokens.to_string().replace(" :: ", "::");
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        self.paths.extend(
            words.filter(|word| word.contains("::")).map(|word| word.split("::").map(String::from).collect()),
        );
    }
}

struct Crate(BTreeMap<Place, Names>);

impl Crate {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = sources("src").into_iter().filter(|(path, _)| !is_test(path));
        Self(
            files
                .map(|(path, text)| {
                    let place = path.strip_prefix(&root).unwrap().with_extension("");
                    let mut place: Place = place.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                    place.pop_if(|last| last == "mod" || last == "lib");
                    let mut names = Names::default();
                    names.visit_file(&syn::parse_file(&text).unwrap());
                    (place, names)
                })
                .collect(),
        )
    }

    /// The place that a path names when it stands in the module `from`; nothing if it is none of this crate's.
    fn place(&self, from: &Place, path: &[String]) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        let child = || [from.as_slice(), std::slice::from_ref(first)].concat();
        let start = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => from[..from.len() - 1].to_vec(),
            name => match self.0[from].imports.get(name) {
                // A name on its own was counted where it was imported, unless it is a module's, which says nothing yet.
                Some(import) => self.place(from, import)?,
                None if self.0.contains_key(&child()) => child(),
                None => return None,
            },
        };
        let mut place = start;
        for name in rest {
            if name == "super" {
                place.pop();
                continue;
            }
            if let Some(export) = self.0.get(&place).and_then(|names| names.exports.get(name)) {
                place = self.place(&place, export)?;
            } else {
                place.push(name.clone());
            }
        }
        Some(place)
    }

    /// The modules that a module names something of.
    fn named(&self, from: &Place) -> BTreeSet<Place> {
        let names = &self.0[from];
        let places = names.imports.values().chain(&names.paths).filter_map(|path| self.place(from, path));
        // A module that is only imported is not yet used: what is named of it is.
        let things = places.filter(|place| !self.0.contains_key(place));
        let modules = things.map(|place| {
            let depth = (0..place.len()).rev().find(|depth| self.0.contains_key(&place[..*depth])).unwrap();
            place[..depth].to_vec()
        });
        modules.filter(|module| module != from).collect()
    }
}

/// A circle of modules, if there is one.
fn circle(graph: &BTreeMap<Place, BTreeSet<Place>>) -> Option<Vec<String>> {
    fn visit(
        at: &Place,
        graph: &BTreeMap<Place, BTreeSet<Place>>,
        path: &mut Vec<Place>,
        done: &mut BTreeSet<Place>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|module| module == at) {
            return Some(path[start..].iter().chain([at]).map(|module| module.join("::")).collect());
        }
        if !done.contains(at) {
            path.push(at.clone());
            for next in &graph[at] {
                let found = visit(next, graph, path, done);
                if found.is_some() {
                    return found;
                }
            }
            path.pop();
            done.insert(at.clone());
        }
        None
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|module| visit(module, graph, &mut Vec::new(), &mut done))
}

#[test]
fn no_modules_name_each_other_in_a_circle() {
    let sources = Crate::read();
    let graph: BTreeMap<_, _> = sources.0.keys().map(|module| (module.clone(), sources.named(module))).collect();
    let edges: usize = graph.values().map(BTreeSet::len).sum();
    assert!(edges > 2 * graph.len(), "only {edges} edges between {} modules: the reading is broken", graph.len());
    if let Some(circle) = circle(&graph) {
        panic!("a circle of modules: {}", circle.join(" → "));
    }
}

/// What each room may name, besides itself. A room is a folder or a file; a room within a room follows its own line.
const ROOMS: [(&str, &[&str]); 14] = [
    ("json", &[]),
    ("sse", &[]),
    ("web", &[]),
    ("session::log", &["json"]),
    ("session::stream", &["json", "session::log"]),
    ("session::machine", &["json", "session::log", "session::stream"]),
    ("provider", &["json", "sse", "session"]),
    ("api", &["json", "sse", "session", "provider", "web"]),
    ("config", &["json", "provider", "api"]),
    ("runtime::platform", &["session", "provider", "api", "config", "web"]),
    ("runtime::storage", &["json", "session", "provider", "api", "runtime::platform"]),
    ("runtime::wire", &["json", "session", "api", "runtime::platform"]),
    ("runtime::worker", &["json", "sse", "session", "api", "config", "web", "runtime::platform", "runtime::wire"]),
    (
        "runtime",
        &[
            "json",
            "sse",
            "session",
            "provider",
            "api",
            "config",
            "runtime::platform",
            "runtime::storage",
            "runtime::wire",
        ],
    ),
];

#[test]
fn each_room_names_only_what_it_stands_on() {
    let sources = Crate::read();
    let within = |module: &str, room: &str| module == room || module.starts_with(&format!("{room}::"));
    for module in sources.0.keys().filter(|module| !module.is_empty()) {
        let name = module.join("::");
        // The root of a room that has rooms says what they are, and names all of them.
        let Some((room, known)) = ROOMS.iter().find(|(room, _)| within(&name, room)) else {
            assert_eq!(name, "session", "this module is in no room");
            continue;
        };
        for other in sources.named(module) {
            let other = other.join("::");
            let own =
                if *room == "runtime" { module[..module.len().min(2)].join("::") } else { (*room).to_owned() };
            let fine = within(&other, &own) || known.iter().any(|known| within(&other, known));
            assert!(fine, "{name} names something of {other}, which it must not know");
        }
    }
}
