//! Finds the arrows between modules, from `use` and from paths in the source.
//!
//! An arrow leads from a module to another one with the same parent. `a/b.rs` that uses `crate::c::d` is an arrow from
//! `a` to `c`. The arrows ignore relations inside one of these modules, and the code of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

/// The modules of one crate, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Modules(BTreeMap<Vec<String>, Module>);

/// The content of one module. Paths begin at the root of the crate.
#[derive(Debug, Default)]
struct Module {
    /// All paths that the module names.
    names: BTreeSet<Vec<String>>,
    /// The re-exports for other modules.
    exports: BTreeMap<String, Vec<String>>,
}

/// The maximum length of a chain of re-exports.
const EXPORTS_MAX: usize = 8;

/// The arrows between the modules of one parent.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

impl Modules {
    /// Reads the crate whose sources are in this directory.
    pub(crate) fn read(sources: &Path) -> Modules {
        let mut modules = Modules::default();
        for root in ["lib.rs", "main.rs"] {
            let path = sources.join(root);
            if path.exists() {
                modules.file(sources, &[], &path);
            }
        }
        modules
    }

    /// Reads a file and the modules that it declares, without those of tests.
    fn file(&mut self, sources: &Path, module: &[String], path: &Path) {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for child in self.source(module, &text) {
            let directory = child.iter().fold(sources.to_owned(), |directory, part| directory.join(part));
            self.file(sources, &child, &directory.with_extension("rs"));
        }
    }

    /// Reads the source of a module. Returns the modules that it declares in other files.
    pub(crate) fn source(&mut self, module: &[String], text: &str) -> Vec<Vec<String>> {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", module.join("::")));
        let mut found = Found { path: module.to_vec(), children: BTreeSet::new(), module: Module::default() };
        let child = |item: &Item| if let Item::Mod(child) = item { Some(child.ident.to_string()) } else { None };
        found.children.extend(file.items.iter().filter_map(child));
        let mut children = Vec::new();
        for item in &file.items {
            if let Item::Mod(ItemMod { ident, content: None, attrs, .. }) = item {
                if !is_of_tests(attrs) {
                    children.push([module, &[ident.to_string()]].concat());
                }
            } else {
                found.visit_item(item);
            }
        }
        let known = self.0.entry(module.to_vec()).or_default();
        known.names.extend(found.module.names);
        known.exports.extend(found.module.exports);
        children
    }

    /// Returns the arrows of every parent whose modules use each other.
    pub(crate) fn arrows(&self) -> BTreeMap<Vec<String>, Arrows> {
        let mut arrows: BTreeMap<Vec<String>, Arrows> = BTreeMap::new();
        for (from, module) in &self.0 {
            for to in module.names.iter().flat_map(|name| self.homes(name)) {
                let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
                if let (Some(from), Some(known)) = (from.get(shared), to.get(shared)) {
                    let parent = to[..shared].to_vec();
                    arrows.entry(parent).or_default().entry(from.clone()).or_default().insert(known.clone());
                }
            }
        }
        arrows
    }

    /// Returns the module to which a path leads, and the modules that re-export it on the way.
    fn homes(&self, name: &[String]) -> Vec<Vec<String>> {
        let (mut homes, mut name) = (Vec::new(), name.to_vec());
        for _ in 0..EXPORTS_MAX {
            let length =
                (0..=name.len()).rev().find(|&length| self.0.contains_key(&name[..length])).unwrap_or_default();
            let (home, rest) = name.split_at(length);
            homes.push(home.to_vec());
            let export = rest.first().and_then(|item| self.0.get(home)?.exports.get(item));
            match export {
                Some(elsewhere) => name = [elsewhere, &rest[1..]].concat(),
                None => break,
            }
        }
        homes
    }
}

/// The findings in one module.
struct Found {
    path: Vec<String>,
    children: BTreeSet<String>,
    module: Module,
}

impl Found {
    /// Returns a path inside this crate, from its root.
    fn whole(&self, path: &[String]) -> Option<Vec<String>> {
        let above = path.iter().take_while(|part| *part == "super").count();
        let (base, rest) = match path.first().map(String::as_str)? {
            "crate" => (&[][..], &path[1..]),
            "self" => (&self.path[..], &path[1..]),
            "super" => (&self.path[..self.path.len().saturating_sub(above)], &path[above..]),
            child if self.children.contains(child) => (&self.path[..], path),
            _ => return None,
        };
        Some([base, rest].concat())
    }

    fn name(&mut self, path: &[String]) {
        let whole = self.whole(path);
        self.module.names.extend(whole);
    }

    fn tree(&mut self, before: &[String], tree: &UseTree, exports: bool) {
        let (name, called) = match tree {
            UseTree::Path(path) => {
                return self.tree(&[before, &[path.ident.to_string()]].concat(), &path.tree, exports);
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.tree(before, tree, exports)),
            UseTree::Glob(_) => return self.name(before),
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(name) => (name.ident.to_string(), name.rename.to_string()),
        };
        let path = if name == "self" { before.to_vec() } else { [before, &[name]].concat() };
        if let Some(whole) = self.whole(&path) {
            if exports {
                self.module.exports.insert(called, whole.clone());
            }
            self.module.names.insert(whole);
        }
    }
}

impl Visit<'_> for Found {
    fn visit_item_use(&mut self, item: &ItemUse) {
        self.tree(&[], &item.tree, !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.name(&parts);
        visit::visit_path(self, path);
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Returns a circle along the arrows, if there is one.
pub(crate) fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    let mut clear = BTreeSet::new();
    arrows.keys().find_map(|from| walk(arrows, from, &mut Vec::new(), &mut clear))
}

fn walk(arrows: &Arrows, at: &String, way: &mut Vec<String>, clear: &mut BTreeSet<String>) -> Option<Vec<String>> {
    if let Some(begin) = way.iter().position(|before| before == at) {
        return Some([&way[begin..], std::slice::from_ref(at)].concat());
    }
    if clear.contains(at) {
        return None;
    }
    way.push(at.clone());
    let found = arrows.get(at).into_iter().flatten().find_map(|next| walk(arrows, next, way, clear));
    way.pop();
    clear.insert(at.clone());
    found
}
