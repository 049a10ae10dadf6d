//! What a source file says of modules: those that it declares, what it imports, and the paths that it uses.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path, from its first segment on.
pub(crate) type Segments = Vec<String>;

/// A module of a file: the file itself, or one that is written inside it.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// `mod name;`
    pub(crate) files: Vec<String>,
    /// `mod name { … }`
    pub(crate) inline: BTreeMap<String, Module>,
    /// The names that `use` brings in, and for what.
    pub(crate) imports: BTreeMap<String, Segments>,
    /// `use path::*`
    pub(crate) globs: Vec<Segments>,
    /// The names that are defined here.
    pub(crate) items: Vec<String>,
    /// The macros that are defined here; one that is exported belongs to the root of the crate.
    pub(crate) macros: Vec<String>,
    /// Those of types, traits and aliases.
    pub(crate) types: Vec<String>,
    /// Every path, those of `use` included.
    pub(crate) paths: Vec<Segments>,
}

impl Module {
    /// Reads a source, but for what is built for tests only.
    pub(crate) fn parse(text: &str) -> Self {
        let tokens: TokenStream = text.parse().expect("a source that the compiler takes");
        let mut module = Self::default();
        module.read(&tokens.into_iter().collect::<Vec<_>>(), true);
        module
    }

    /// `of_module`: the tokens are items of the module, not the inside of one.
    fn read(&mut self, tokens: &[TokenTree], of_module: bool) {
        let mut at = 0;
        while at < tokens.len() {
            at += self.step(tokens, at, of_module);
        }
    }

    /// Reads what begins at a token; the number of tokens read.
    fn step(&mut self, tokens: &[TokenTree], at: usize, of_module: bool) -> usize {
        if is_test_attribute(&tokens[at..]) {
            return 2 + item_len(&tokens[at + 2..]);
        }
        match &tokens[at] {
            TokenTree::Ident(word) if word == "use" && !is_precise_capture(tokens, at) => {
                let len = tokens[at..].iter().take_while(|token| !is_punct(token, ';')).count();
                self.use_tree(&tokens[at + 1..at + len], &[]);
                len
            }
            TokenTree::Ident(word) if word == "mod" => {
                match (tokens.get(at + 1), tokens.get(at + 2)) {
                    (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) => {
                        let mut inner = Self::default();
                        inner.read(&body.stream().into_iter().collect::<Vec<_>>(), true);
                        self.inline.insert(name.to_string(), inner);
                        3
                    }
                    (Some(TokenTree::Ident(name)), _) => {
                        self.files.push(name.to_string());
                        3
                    }
                    _ => 1,
                }
            }
            TokenTree::Ident(word) if word == "pub" => {
                1 + usize::from(is_scope(tokens.get(at + 1)))
            }
            TokenTree::Ident(word) if word == "macro_rules" => {
                self.macros.extend(tokens.get(at + 2).map(ToString::to_string));
                1
            }
            TokenTree::Ident(word) => {
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                    && of_module
                {
                    self.define(&word.to_string(), name.to_string());
                }
                let path = path(&tokens[at..]);
                let len = 1 + 3 * (path.len() - 1);
                if path.len() > 1 {
                    self.paths.push(path);
                }
                len
            }
            TokenTree::Group(group) => {
                self.read(&group.stream().into_iter().collect::<Vec<_>>(), false);
                1
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => 1,
        }
    }

    fn define(&mut self, keyword: &str, name: String) {
        if ["enum", "struct", "trait", "type", "union"].contains(&keyword) {
            self.types.push(name.clone());
            self.items.push(name);
        } else if ["const", "fn", "static"].contains(&keyword) {
            self.items.push(name);
        }
    }

    fn use_tree(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        let mut whole = prefix.to_vec();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    let name = tokens[at + 1].to_string();
                    return self.import(name, whole);
                }
                TokenTree::Ident(word) => whole.push(word.to_string()),
                TokenTree::Punct(mark) if mark.as_char() == '*' => {
                    self.paths.push(whole.clone());
                    return self.globs.push(whole);
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    // There may be a comma at the end.
                    let trees = inner.split(|token| is_punct(token, ','));
                    trees
                        .filter(|tree| !tree.is_empty())
                        .for_each(|tree| self.use_tree(tree, &whole));
                    return;
                }
                _ => {}
            }
        }
        if let Some(name) = whole.last().cloned() {
            self.import(name, whole);
        }
    }

    fn import(&mut self, name: String, mut whole: Segments) {
        let mut name = name;
        if whole.last().is_some_and(|last| last == "self") && whole.len() > 1 {
            whole.pop();
            name = if name == "self" { whole[whole.len() - 1].clone() } else { name };
        }
        self.paths.push(whole.clone());
        self.imports.insert(name, whole);
    }
}

fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// `impl Trait + use<'_>` is no import.
fn is_precise_capture(tokens: &[TokenTree], at: usize) -> bool {
    tokens.get(at + 1).is_some_and(|next| is_punct(next, '<'))
}

/// `pub(in path)` uses nothing of that module.
fn is_scope(next: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = next else { return false };
    group.delimiter() == Delimiter::Parenthesis && group.stream().to_string().starts_with("in ")
}

/// The path at the beginning, which is an identifier.
fn path(tokens: &[TokenTree]) -> Segments {
    let mut path = vec![tokens[0].to_string()];
    let mut rest = &tokens[1..];
    while let [one, two, TokenTree::Ident(next), after @ ..] = rest
        && is_punct(one, ':')
        && is_punct(two, ':')
    {
        path.push(next.to_string());
        rest = after;
    }
    path
}

/// `#[cfg(test)]`, `#[cfg(loom)]`, or another condition that only tests meet.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [mark, TokenTree::Group(attribute), ..] = tokens else { return false };
    let text = attribute.stream().to_string();
    let has = |word| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
    let needs = |word| has(word) && !text.contains(&format!("not ({word}"));
    is_punct(mark, '#')
        && text.starts_with("cfg")
        && !text.starts_with("cfg_attr")
        && (needs("test") || needs("loom"))
        && !has("any")
}

/// The length of an item: up to its semicolon, or to its body.
fn item_len(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    };
    tokens.iter().position(ends).map_or(tokens.len(), |at| at + 1)
}

#[test]
fn a_source_is_read() {
    let module = Module::parse(
        "mod a; mod b { use super::c; fn inner() {} } use x::{self, y::*, z as w, v::{V, U,}};
         fn f() { crate::p::q(1); m!(super::r::s) } #[cfg(test)] mod tests; struct S;
         pub(in crate::no) fn i() {} macro_rules! each { () => { $crate::s::t } }
         #[cfg(all(test, not(loom)))] fn g() { crate::no::no() } #[cfg(not(test))] fn h() -> impl Copy + use<'static> {}
         #[cfg(loom)] struct Model;",
    );
    let segments = |text: &str| text.split("::").map(str::to_owned).collect::<Segments>();
    assert_eq!(module.files, ["a"]);
    assert_eq!(module.items, ["f", "S", "i", "h"]);
    assert_eq!(module.macros, ["each"]);
    assert_eq!(module.types, ["S"]);
    assert_eq!(module.inline["b"].imports["c"], segments("super::c"));
    assert_eq!(module.imports["w"], segments("x::z"));
    assert_eq!(module.imports["x"], segments("x"));
    assert_eq!(module.imports["U"], segments("x::v::U"));
    assert_eq!(module.globs, [segments("x::y")]);
    for path in ["crate::p::q", "super::r::s", "x::v::V", "crate::s::t"] {
        assert!(module.paths.contains(&segments(path)), "{path}: {:?}", module.paths);
    }
    assert!(!module.paths.contains(&segments("x::v")), "{:?}", module.paths);
    assert!(!module.paths.iter().flatten().any(|segment| segment == "no"));
}
