//! The modules of a crate, and which of its files use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::source::Module;

/// Steps from one re-export to the next that are followed.
const RE_EXPORTS: usize = 8;

/// The path of a module from the root of its crate.
type Name = Vec<String>;

/// A crate's modules that are not for tests only.
pub(crate) struct Modules {
    /// Every module with its file, relative to the folder of the root.
    by_name: BTreeMap<Name, (PathBuf, Module)>,
}

impl Modules {
    /// Reads a crate, from the file that is its root.
    pub(crate) fn read(root: &Path) -> Self {
        let mut modules = Self { by_name: BTreeMap::new() };
        let (folder, file) = (root.parent().unwrap(), root.file_name().unwrap());
        modules.read_file(folder, Path::new(file), Vec::new(), PathBuf::new());
        modules
    }

    /// `children`: the folder of the file's modules.
    fn read_file(&mut self, folder: &Path, file: &Path, name: Name, children: PathBuf) {
        let text = std::fs::read_to_string(folder.join(file)).expect("a module's file");
        self.add(folder, file, name, children, Module::parse(&text));
    }

    fn add(
        &mut self,
        folder: &Path,
        file: &Path,
        name: Name,
        children: PathBuf,
        mut module: Module,
    ) {
        for child in &module.files {
            let below = children.join(child);
            let one = [below.with_extension("rs"), below.join("mod.rs")];
            let found = one.iter().find(|path| folder.join(path).exists());
            let found = found.unwrap_or_else(|| panic!("{}: mod {child}", file.display()));
            self.read_file(folder, found, join(&name, child), below);
        }
        for (child, inner) in std::mem::take(&mut module.inline) {
            self.add(folder, file, join(&name, &child), children.join(&child), inner);
        }
        self.by_name.insert(name, (file.to_owned(), module));
    }

    /// The names of other crates that the crate uses, and the file that does.
    pub(crate) fn other_crates(&self) -> BTreeSet<(&str, &Path)> {
        let all = self.by_name.values();
        all.flat_map(|(file, module)| {
            module.paths.iter().map(|path| (path[0].as_str(), file.as_path()))
        })
        .collect()
    }

    /// The files that define a type of each name; what a file keeps in a module within itself does not count.
    pub(crate) fn types(&self) -> BTreeMap<&str, BTreeSet<&Path>> {
        let mut types = BTreeMap::<_, BTreeSet<_>>::new();
        for (name, (file, module)) in &self.by_name {
            let outer = name.split_last().map(|(_, outer)| &self.by_name[outer].0);
            if outer != Some(file) {
                for name in &module.types {
                    types.entry(name.as_str()).or_default().insert(file.as_path());
                }
            }
        }
        types
    }

    /// Which file uses which other: `(from, to)`.
    pub(crate) fn uses(&self) -> BTreeSet<(&Path, &Path)> {
        let mut uses = BTreeSet::new();
        for (name, (file, module)) in &self.by_name {
            for path in &module.paths {
                if let Some(to) = self.resolve(name, path, RE_EXPORTS) {
                    uses.insert((file.as_path(), self.by_name[to].0.as_path()));
                }
            }
        }
        uses.retain(|(from, to)| from != to);
        uses
    }

    /// The module of this crate that defines what a path means in a module.
    fn resolve<'a>(&'a self, from: &[String], path: &[String], depth: usize) -> Option<&'a Name> {
        let (first, rest) = path.split_first()?;
        let depth = depth.checked_sub(1)?;
        match first.as_str() {
            "crate" => self.descend(&[], rest, depth),
            "self" => self.descend(from, rest, depth),
            "super" => {
                let outer = from.split_last()?.1;
                match rest.first() {
                    Some(next) if next == "super" => self.resolve(outer, rest, depth + 1),
                    _ => self.descend(outer, rest, depth),
                }
            }
            _ if self.by_name.contains_key(&join(from, first)) => self.descend(from, path, depth),
            _ => {
                let import = self.by_name.get(from)?.1.imports.get(first)?;
                if import == path {
                    return None;
                }
                self.resolve(from, &[import, rest].concat(), depth)
            }
        }
    }

    fn descend<'a>(&'a self, at: &[String], rest: &[String], depth: usize) -> Option<&'a Name> {
        let (name, (_, module)) = self.by_name.get_key_value(at)?;
        let Some((next, after)) = rest.split_first() else { return Some(name) };
        let below = join(at, next);
        if self.by_name.contains_key(&below) {
            return self.descend(&below, after, depth);
        }
        if module.items.contains(next) {
            return Some(name);
        }
        let defines = |(_, (_, module)): &(_, &(_, Module))| module.macros.contains(next);
        if at.is_empty()
            && let Some((name, _)) = self.by_name.iter().find(defines)
        {
            return Some(name);
        }
        if let Some(import) = module.imports.get(next) {
            // Of another crate, and so of no file of this one.
            return self.resolve(at, &[import, after].concat(), depth);
        }
        let mut globs = module.globs.iter().filter_map(|glob| self.resolve(at, glob, depth));
        let defined = globs.find(|found| self.by_name[*found].1.items.contains(next));
        Some(defined.unwrap_or(name))
    }
}

fn join(name: &[String], child: &str) -> Name {
    [name, &[child.to_owned()]].concat()
}
