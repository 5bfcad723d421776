//! The files of a core as they are compiled with the chosen features, and their text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{LineColumn, Span};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Item, Lit, Meta, Token};

/// One file of a core.
pub struct Source {
    /// Relative to `src`.
    pub path: String,
    pub text: String,
    pub syntax: syn::File,
    /// Where each line starts.
    lines: Vec<usize>,
}

impl Source {
    fn read(src: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let syntax = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let path = path.strip_prefix(src).expect("it is below").to_str().expect("UTF-8").into();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { path, lines: lines.collect(), text, syntax }
    }

    /// The bytes that a span covers.
    pub fn range(&self, span: Span) -> (usize, usize) {
        (self.offset(span.start()), self.offset(span.end()))
    }

    fn offset(&self, at: LineColumn) -> usize {
        let start = self.lines[at.line - 1];
        let rest = &self.text[start..];
        let column = rest.char_indices().nth(at.column).map_or(rest.len(), |(len, _)| len);
        start + column
    }

    pub fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at)
    }
}

/// The enabled features: the default ones and `more`.
pub fn features(manifest: &str, more: &[&str]) -> BTreeSet<String> {
    let mut on = BTreeSet::new();
    let mut open: Vec<String> = more.iter().map(ToString::to_string).collect();
    open.push("default".into());
    while let Some(name) = open.pop() {
        let line = manifest.lines().find_map(|line| {
            let (left, right) = line.split_once(" = [")?;
            (left == name).then_some(right)
        });
        let implied = line.unwrap_or_default().split('"').skip(1).step_by(2);
        open.extend(implied.filter(|it| !it.contains(':')).map(String::from));
        on.insert(name);
    }
    on
}

/// Whether it is compiled, and not for tests only.
pub fn is_compiled(attributes: &[Attribute], features: &BTreeSet<String>) -> bool {
    attributes.iter().filter(|it| it.path().is_ident("cfg")).all(|attribute| {
        let meta: Meta = attribute.parse_args().expect("a condition");
        holds(&meta, features)
    })
}

fn holds(meta: &Meta, features: &BTreeSet<String>) -> bool {
    let inner = |list: &syn::MetaList| {
        let all = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        all.expect("conditions").into_iter().collect::<Vec<_>>()
    };
    match meta {
        Meta::Path(path) => path.is_ident("unix"),
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(value) => match &value.lit {
                Lit::Str(text) if pair.path.is_ident("feature") => features.contains(&text.value()),
                Lit::Str(text) => text.value() == "linux",
                _ => false,
            },
            _ => false,
        },
        Meta::List(list) if list.path.is_ident("not") => !holds(&inner(list)[0], features),
        Meta::List(list) if list.path.is_ident("any") => {
            inner(list).iter().any(|meta| holds(meta, features))
        }
        Meta::List(list) => inner(list).iter().all(|meta| holds(meta, features)),
    }
}

/// All files of the module `name` below `src`.
pub fn read_core(src: &Path, name: &str, features: &BTreeSet<String>) -> Vec<Source> {
    let mut all = Vec::new();
    let mut open = vec![src.join(name).join("mod.rs")];
    while let Some(path) = open.pop() {
        let source = Source::read(src, &path);
        let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod") => path.parent().expect("it has a folder").to_owned(),
            _ => path.with_extension(""),
        };
        for item in &source.syntax.items {
            let Item::Mod(module) = item else { continue };
            if module.content.is_none() && is_compiled(&module.attrs, features) {
                open.push(module_path(module, &path, &folder));
            }
        }
        all.push(source);
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn module_path(module: &syn::ItemMod, file: &Path, folder: &Path) -> PathBuf {
    let named = module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(value) => match &value.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    if let Some(named) = named {
        return file.parent().expect("it has a folder").join(named);
    }
    let plain = folder.join(format!("{}.rs", module.ident));
    if plain.exists() { plain } else { folder.join(module.ident.to_string()).join("mod.rs") }
}
