//! The functions of the product's sources, by name: mutants find their places in them, in whatever file they are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Folders whose code is not the product: what tests it and shows it.
const NOT_THE_PRODUCT: [&str; 5] = ["bench", "conformance", "examples", "mutants", "tools"];

/// Where a function is: a file and a range of its bytes.
type Function<'a> = (&'a Path, Range<usize>);

/// The functions of some files. A method has the name `Type::method`, where the type is that of the `impl`, or the
/// trait that gives it a default; any other function has its own name. A macro counts as a function, since those that it
/// makes are no functions of the source. Several functions can have one name.
pub(crate) struct Functions<'a> {
    files: &'a BTreeMap<PathBuf, String>,
    by_name: BTreeMap<String, Vec<Function<'a>>>,
}

impl<'a> Functions<'a> {
    /// Reads the sources of the libraries among the files of a workspace.
    pub(crate) fn read(files: &'a BTreeMap<PathBuf, String>) -> Result<Self, String> {
        let mut by_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (path, text) in files.iter().filter(|(path, _)| is_library_source(path)) {
            let syntax =
                syn::parse_file(text).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut visitor = Visitor { owner: None, found: Vec::new() };
            visitor.visit_file(&syntax);
            for (name, range) in visitor.found {
                by_name.entry(name).or_default().push((path.as_path(), range));
            }
        }
        Ok(Self { files, by_name })
    }

    /// The only place of a text in functions of a name.
    pub(crate) fn only_place(&self, function: &str, text: &str) -> Result<Function<'a>, String> {
        let functions = self.by_name.get(function).ok_or(format!("no function {function}"))?;
        let mut places = Vec::new();
        for (path, range) in functions {
            let found = self.files[*path][range.clone()].match_indices(text);
            places.extend(found.map(|(at, _)| (*path, range.start + at)));
        }
        match places[..] {
            [(path, start)] => Ok((path, start..start + text.len())),
            _ => Err(format!("{function} has {text:?} {} times, not once", places.len())),
        }
    }
}

fn is_library_source(path: &Path) -> bool {
    let folders: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    let in_source = match folders[..] {
        ["src", ..] => true,
        [package, "src", ..] => !NOT_THE_PRODUCT.contains(&package),
        _ => false,
    };
    in_source && path.extension().is_some_and(|extension| extension == "rs")
}

/// Collects the names and the ranges of functions.
struct Visitor {
    /// The type or trait of the methods visited now.
    owner: Option<String>,
    found: Vec<(String, Range<usize>)>,
}

impl Visitor {
    fn method(&mut self, name: &syn::Ident, item: &impl Spanned) {
        let owner = self.owner.as_deref().unwrap_or_default();
        self.found.push((format!("{owner}::{name}"), item.span().byte_range()));
    }

    /// Visits items that belong to an owner, or to none.
    fn within(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outer;
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(owner, |this| visit::visit_item_impl(this, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(Some(item.ident.to_string()), |this| visit::visit_item_trait(this, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.method(&item.sig.ident, item);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.method(&item.sig.ident, item);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if let Some(name) = &item.ident {
            self.found.push((name.to_string(), item.span().byte_range()));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.found.push((item.sig.ident.to_string(), item.span().byte_range()));
        self.within(None, |this| visit::visit_item_fn(this, item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(files: &[(&str, &str)], function: &str, text: &str) -> Result<String, String> {
        let files = files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        let (path, range) = Functions::read(&files)?.only_place(function, text)?;
        let before = &files[path][..range.start];
        Ok(format!("{}:{}", path.display(), before.matches('\n').count() + 1))
    }

    const QUEUE: &str = "// über
        impl<T> super::Queue<T> { fn push(&mut self) { a + b; }
            fn pop(&mut self) { a + b; c; c; } }
        impl Drop for Queue<u8> { fn drop(&mut self) { a + b } }
        trait Look { fn look(&self) { a + b } }
        macro_rules! make { ($name:ident) => { fn $name() { a + b } } }
        fn push() { a + b }";

    #[test]
    fn a_function_names_the_file() {
        let files = [("one/src/deep/queue.rs", QUEUE), ("src/lib.rs", "fn look() { a + b }")];
        let place = |function, text| place(&files, function, text);
        assert_eq!(place("Queue::push", "a + b").unwrap(), "one/src/deep/queue.rs:2");
        assert_eq!(place("Queue::pop", "a + b").unwrap(), "one/src/deep/queue.rs:3");
        assert_eq!(place("Queue::drop", "a + b").unwrap(), "one/src/deep/queue.rs:4");
        assert_eq!(place("Look::look", "a + b").unwrap(), "one/src/deep/queue.rs:5");
        assert_eq!(place("make", "a + b").unwrap(), "one/src/deep/queue.rs:6");
        assert_eq!(place("push", "a + b").unwrap(), "one/src/deep/queue.rs:7");
        assert_eq!(place("look", "a + b").unwrap(), "src/lib.rs:1");
    }

    #[test]
    fn other_than_once_is_an_error() {
        let files = [("one/src/queue.rs", QUEUE), ("two/src/queue.rs", "fn push() { a + b }")];
        let fails = |function, text| place(&files, function, text).unwrap_err();
        assert_eq!(fails("Queue::peek", "a"), "no function Queue::peek");
        assert_eq!(fails("Queue::push", "c;"), "Queue::push has \"c;\" 0 times, not once");
        assert_eq!(fails("Queue::pop", "c;"), "Queue::pop has \"c;\" 2 times, not once");
        assert_eq!(fails("push", "a + b"), "push has \"a + b\" 2 times, not once");
    }

    #[test]
    fn only_libraries_are_looked_at() {
        let other = ["mutants/src/a.rs", "one/tests/a.rs", "one/benches/src/a.rs", "one/src/a.md"];
        for file in other {
            assert_eq!(place(&[(file, QUEUE)], "push", "a").unwrap_err(), "no function push");
        }
    }
}
