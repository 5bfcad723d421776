//! Finds the places where a core can be broken, by walking its syntax tree. A mutant is a pair of
//! texts to put around a range of the source, so that all of them fit into one tree.
//!
//! Not mutated: constants, patterns, the contents of macros, tests, `Debug` and `Display`, and
//! statements that only log.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprMethodCall, ReturnType, Signature, Stmt, Type, UnOp};

use crate::source::{Source, is_compiled};

/// One way to break a core.
pub struct Mutant {
    pub id: u32,
    /// The index of its file.
    pub file: usize,
    /// Its file, function and change: the same from run to run.
    pub identity: String,
    /// The name of the rule that it breaks, if it is one of those.
    pub rule: Option<String>,
    /// The range that it surrounds, bytes of the file.
    pub range: (usize, usize),
    pub before: Before,
    pub after: &'static str,
}

/// The opening text of a mutant, around the number that is known later.
pub enum Before {
    /// `if active(N) { this } else {`
    Instead(String),
    /// `if !active(N) {`
    Unless,
    /// `active(N) ||`
    Or,
    /// `!active(N) &&`
    AndNot,
    /// `|it| active(N) || this(it)`
    Filter,
    /// The body of a function: `{ if active(N) { this } else`
    Body(String),
}

impl Mutant {
    /// The text before the range.
    pub fn open(&self) -> String {
        let active = format!("crate::mutation::active({})", self.id);
        match &self.before {
            Before::Instead(text) => format!("(if {active} {{ {text} }} else {{ "),
            Before::Unless => format!("if !{active} {{ "),
            Before::Or => format!("({active} || ("),
            Before::AndNot => format!("(!{active} && ("),
            Before::Filter => format!("|it| {active} || ("),
            Before::Body(text) => format!("{{ if {active} {{ {text} }} else "),
        }
    }
}

/// A function with its body: rules name them.
pub struct Function {
    pub path: String,
    /// Of the body, braces included.
    pub range: (usize, usize),
    /// Its type cannot be written twice.
    pub is_opaque: bool,
    /// All expressions in it, bytes of the file.
    pub expressions: Vec<(usize, usize)>,
}

/// The contents of a file.
pub struct Found {
    pub mutants: Vec<Mutant>,
    pub functions: Vec<Function>,
}

/// Finds everything in one file.
pub fn find(source: &Source, file: usize, features: &BTreeSet<String>) -> Found {
    let mut finder = Finder {
        source,
        file,
        features,
        path: Vec::new(),
        found: Vec::new(),
        functions: Vec::new(),
        open: Vec::new(),
        unit: HashSet::new(),
        seen: BTreeMap::new(),
        conditions: HashSet::new(),
    };
    finder.visit_file(&source.syntax);
    Found { mutants: finder.found, functions: finder.functions }
}

type Range = (usize, usize);

struct Finder<'a> {
    source: &'a Source,
    file: usize,
    features: &'a BTreeSet<String>,
    /// The enclosing types and functions.
    path: Vec<String>,
    found: Vec<Mutant>,
    functions: Vec<Function>,
    /// The enclosing functions, as indexes into `functions`.
    open: Vec<usize>,
    /// Blocks and expressions whose value is known to be `()`.
    unit: HashSet<Range>,
    /// How often each identity was used.
    seen: BTreeMap<String, usize>,
    /// Ranges that have their `true` and `false` already.
    conditions: HashSet<Range>,
}

impl Finder<'_> {
    fn range(&self, it: &impl Spanned) -> Range {
        self.source.range(it.span())
    }

    fn text(&self, it: &impl Spanned) -> String {
        let (start, end) = self.range(it);
        self.source.text[start..end].to_owned()
    }

    fn add(&mut self, range: Range, what: &str, before: Before) {
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        let base = format!("{} {}: {}", self.source.path, self.path.join("::"), shortened(&what));
        let count = self.seen.entry(base.clone()).or_default();
        *count += 1;
        let identity = if *count == 1 { base } else { format!("{base} #{count}") };
        let after = match &before {
            Before::Instead(_) => " })",
            Before::Unless | Before::Body(_) => " }",
            Before::Or | Before::AndNot => "))",
            Before::Filter => ")(it)",
        };
        self.found.push(Mutant {
            id: 0,
            file: self.file,
            identity,
            rule: None,
            range,
            before,
            after,
        });
    }

    /// Replaces an expression by another one.
    fn instead(&mut self, of: &impl Spanned, with: String) {
        let what = format!("{} -> {with}", self.text(of));
        self.add(self.range(of), &what, Before::Instead(with));
    }

    /// A condition that always or never holds.
    fn fixed(&mut self, condition: &Expr, holds: bool, place: &str) {
        if has_let(condition) || matches!(condition, Expr::Lit(_)) {
            return;
        }
        let what = format!("{place} {} -> {holds}", self.text(condition));
        let before = if holds { Before::Or } else { Before::AndNot };
        self.add(self.range(condition), &what, before);
    }

    fn condition(&mut self, condition: &Expr, place: &str) {
        let range = self.range(condition);
        if self.conditions.insert(range) {
            self.fixed(condition, true, place);
            self.fixed(condition, false, place);
        }
    }

    fn binary(&mut self, it: &syn::ExprBinary) {
        let (left, right) = (&*it.left, &*it.right);
        let (a, b) = (self.text(left), self.text(right));
        let swapped = |op: &str| format!("{a} {op} {b}");
        let others: &[&str] = match it.op {
            BinOp::Lt(_) => &["<=", ">="],
            BinOp::Le(_) => &["<", ">"],
            BinOp::Gt(_) => &[">=", "<="],
            BinOp::Ge(_) => &[">", "<"],
            BinOp::Eq(_) => &["!="],
            BinOp::Ne(_) => &["=="],
            BinOp::Add(_) => &["-"],
            BinOp::Sub(_) => &["+"],
            BinOp::Mul(_) | BinOp::Rem(_) => &["/"],
            BinOp::Div(_) => &["*"],
            BinOp::Shl(_) => &[">>"],
            BinOp::Shr(_) => &["<<"],
            BinOp::BitAnd(_) => &["|"],
            BinOp::BitOr(_) => &["&"],
            BinOp::And(_) if !has_let(left) && !has_let(right) => &["||"],
            BinOp::Or(_) => &["&&"],
            _ => &[],
        };
        for other in others {
            self.instead(it, swapped(other));
        }
        if matches!(it.op, BinOp::Shl(_)) {
            self.instead(it, a);
        }
        for operand in [left, right] {
            match (&it.op, bare(operand)) {
                (BinOp::And(_), Expr::Binary(one)) if matches!(one.op, BinOp::And(_)) => {}
                (BinOp::Or(_), Expr::Binary(one)) if matches!(one.op, BinOp::Or(_)) => {}
                (BinOp::And(_), _) => self.fixed(operand, true, "and"),
                (BinOp::Or(_), _) => self.fixed(operand, false, "or"),
                _ => {}
            }
        }
    }

    fn method_call(&mut self, it: &ExprMethodCall) {
        let name = it.method.to_string();
        let other = match name.as_str() {
            "min" => "max",
            "max" => "min",
            "min_by_key" => "max_by_key",
            "max_by_key" => "min_by_key",
            "saturating_add" => "saturating_sub",
            "saturating_sub" => "saturating_add",
            "any" => "all",
            "all" => "any",
            "is_some" => "is_none",
            "is_none" => "is_some",
            "is_ok" => "is_err",
            "is_err" => "is_ok",
            "is_some_and" => "is_none_or",
            "is_none_or" => "is_some_and",
            "first" => "last",
            "last" => "first",
            _ => "",
        };
        if !other.is_empty() {
            let (start, end) = self.range(it);
            let (name_start, name_end) = self.range(&it.method);
            let text = &self.source.text;
            let with = format!("{}{other}{}", &text[start..name_start], &text[name_end..end]);
            let args = &text[name_end..end];
            let what = format!("{} -> {other}{args}", &text[name_start..end]);
            self.add((start, end), &what, Before::Instead(with));
        }
        if matches!(name.as_str(), "then" | "then_some") {
            self.condition(&it.receiver, "then");
        }
        let asks = [
            "filter",
            "any",
            "all",
            "find",
            "position",
            "retain",
            "is_some_and",
            "is_none_or",
            "take_while",
            "skip_while",
            "take_if",
            "partition",
            "partition_point",
            "is_ok_and",
        ];
        if asks.contains(&name.as_str())
            && let Some(Expr::Closure(closure)) = it.args.first()
        {
            match bare(&closure.body) {
                Expr::Block(_) | Expr::Match(_) | Expr::If(_) => {}
                _ => self.condition(&closure.body, &name),
            }
        }
        if name == "filter"
            && let Some(Expr::Path(path)) = it.args.first()
        {
            let what = format!("filter {} -> true", self.text(path));
            self.add(self.range(path), &what, Before::Filter);
        }
    }

    /// Leaves out a statement, or an expression that has no value.
    fn leave_out(&mut self, it: &Expr, range: Range) {
        let assigns = |op: &BinOp| {
            use BinOp::{
                AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign,
                RemAssign, ShlAssign, ShrAssign, SubAssign,
            };
            matches!(
                op,
                AddAssign(_)
                    | SubAssign(_)
                    | MulAssign(_)
                    | DivAssign(_)
                    | RemAssign(_)
                    | BitAndAssign(_)
                    | BitOrAssign(_)
                    | BitXorAssign(_)
                    | ShlAssign(_)
                    | ShrAssign(_)
            )
        };
        let counts = match it {
            Expr::MethodCall(call) => call.attrs.is_empty(),
            Expr::Call(call) => call.attrs.is_empty(),
            Expr::Assign(assign) => assign.attrs.is_empty(),
            Expr::Binary(binary) => assigns(&binary.op) && binary.attrs.is_empty(),
            _ => false,
        };
        let text = self.text(it);
        if counts && !text.contains("Action::Log") {
            self.add(range, &format!("without {text}"), Before::Unless);
        }
    }

    /// A return value for a function whose body is skipped.
    fn empty_bodies(&mut self, signature: &Signature, body: &Block) {
        let range = self.range(body);
        let trivial = body.stmts.is_empty();
        let values: &[&str] = match &signature.output {
            ReturnType::Default if trivial => &[],
            ReturnType::Default => &[""],
            ReturnType::Type(_, output) => match &**output {
                Type::Path(path) => {
                    let last = path.path.segments.last().expect("a path has a name");
                    match last.ident.to_string().as_str() {
                        "bool" => &["true", "false"],
                        "Option" => &["None"],
                        "Vec" => &["Vec::new()"],
                        "String" => &["String::new()"],
                        "Result" if self.text(path).starts_with("Result<(),") => &["Ok(())"],
                        _ => &[],
                    }
                }
                _ => &[],
            },
        };
        let whole = self.text(body);
        let whole = whole.trim_matches(['{', '}']).trim();
        for value in values.iter().filter(|value| **value != whole) {
            let what = format!("does {}", if value.is_empty() { "nothing" } else { value });
            self.add(range, &what, Before::Body((*value).into()));
        }
    }

    fn function(&mut self, signature: &Signature, body: &Block) {
        if signature.constness.is_some() {
            return;
        }
        self.path.push(signature.ident.to_string());
        let output = match &signature.output {
            ReturnType::Default => {
                self.unit.insert(self.range(body));
                String::new()
            }
            ReturnType::Type(_, output) => self.text(output),
        };
        self.open.push(self.functions.len());
        self.functions.push(Function {
            path: self.path.join("::"),
            range: self.range(body),
            is_opaque: output.contains("impl "),
            expressions: Vec::new(),
        });
        self.empty_bodies(signature, body);
        self.visit_block(body);
        self.open.pop();
        self.path.pop();
    }

    /// The branches of an expression without a value have none either.
    fn spread_unit(&mut self, it: &Expr) {
        match it {
            Expr::If(it) => {
                self.unit.insert(self.range(&it.then_branch));
                if let Some((_, other)) = &it.else_branch {
                    self.unit.insert(self.range(other));
                    self.spread_unit(other);
                }
            }
            Expr::Match(it) => {
                for arm in &it.arms {
                    self.unit.insert(self.range(&arm.body));
                    self.spread_unit(&arm.body);
                }
            }
            Expr::Block(it) => {
                self.unit.insert(self.range(&it.block));
            }
            _ => {}
        }
    }

    fn is_on(&self, attributes: &[syn::Attribute]) -> bool {
        let of_tests = |it: &syn::Attribute| it.path().is_ident("test");
        is_compiled(attributes, self.features) && !attributes.iter().any(of_tests)
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_macro(&mut self, _: &'ast syn::ItemMacro) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_item_mod(&mut self, it: &'ast syn::ItemMod) {
        if self.is_on(&it.attrs) {
            self.path.push(it.ident.to_string());
            visit::visit_item_mod(self, it);
            self.path.pop();
        }
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        if self.is_on(&it.attrs) {
            self.function(&it.sig, &it.block);
        }
    }

    fn visit_item_impl(&mut self, it: &'ast syn::ItemImpl) {
        let of = it.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        let shows = of.is_some_and(|it| it.ident == "Debug" || it.ident == "Display");
        if !self.is_on(&it.attrs) || shows {
            return;
        }
        let name = match &*it.self_ty {
            Type::Path(path) => path.path.segments.last().map(|it| it.ident.to_string()),
            _ => None,
        };
        self.path.push(name.unwrap_or_else(|| "_".into()));
        visit::visit_item_impl(self, it);
        self.path.pop();
    }

    fn visit_item_trait(&mut self, it: &'ast syn::ItemTrait) {
        self.path.push(it.ident.to_string());
        visit::visit_item_trait(self, it);
        self.path.pop();
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if self.is_on(&it.attrs) {
            self.function(&it.sig, &it.block);
        }
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if let Some(body) = it.default.as_ref().filter(|_| self.is_on(&it.attrs)) {
            self.function(&it.sig, body);
        }
    }

    fn visit_block(&mut self, it: &'ast Block) {
        let is_unit = self.unit.contains(&self.range(it));
        let last = it.stmts.len().saturating_sub(1);
        for (at, statement) in it.stmts.iter().enumerate() {
            match statement {
                Stmt::Expr(inner, Some(_)) => {
                    self.leave_out(inner, self.range(statement));
                    self.spread_unit(inner);
                }
                Stmt::Expr(inner, None) if is_unit || at < last => {
                    self.leave_out(inner, self.range(statement));
                    self.spread_unit(inner);
                }
                Stmt::Local(local) if !self.is_on(&local.attrs) => continue,
                _ => {}
            }
            self.visit_stmt(statement);
        }
    }

    fn visit_arm(&mut self, it: &'ast syn::Arm) {
        if !self.is_on(&it.attrs) {
            return;
        }
        if let Some((_, guard)) = &it.guard {
            self.condition(guard, "guard");
            self.visit_expr(guard);
        }
        let range = self.range(&it.body);
        if self.unit.contains(&range) || matches!(&*it.body, Expr::Assign(_)) {
            self.leave_out(&it.body, range);
        }
        self.visit_expr(&it.body);
    }

    fn visit_local(&mut self, it: &'ast syn::Local) {
        if let Some(init) = &it.init {
            self.visit_expr(&init.expr);
            if let Some((_, diverge)) = &init.diverge {
                self.visit_expr(diverge);
            }
        }
    }

    fn visit_expr(&mut self, it: &'ast Expr) {
        let range = self.range(it);
        for at in self.open.clone() {
            self.functions[at].expressions.push(range);
        }
        match it {
            Expr::Binary(binary) if binary.attrs.is_empty() => self.binary(binary),
            Expr::Unary(not) if matches!(not.op, UnOp::Not(_)) && !has_let(&not.expr) => {
                self.instead(not, self.text(&not.expr));
            }
            Expr::MethodCall(call) if call.attrs.is_empty() => self.method_call(call),
            Expr::If(it) => self.condition(&it.cond, "if"),
            Expr::While(it) => self.fixed(&it.cond, false, "while"),
            Expr::Const(_) | Expr::Macro(_) => return,
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::ForLoop(each) => {
                self.unit.insert(self.range(&each.body));
            }
            Expr::Loop(each) => {
                self.unit.insert(self.range(&each.body));
            }
            _ => {}
        }
        if let Expr::While(each) = it {
            self.unit.insert(self.range(&each.body));
        }
        visit::visit_expr(self, it);
    }
}

/// Whether it binds names: such a condition must stay as it is.
fn has_let(it: &Expr) -> bool {
    match it {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(paren) => has_let(&paren.expr),
        _ => false,
    }
}

fn bare(it: &Expr) -> &Expr {
    match it {
        Expr::Paren(paren) => bare(&paren.expr),
        other => other,
    }
}

/// Shortens long texts to their two ends.
fn shortened(text: &str) -> String {
    const MAX: usize = 120;
    let count = text.chars().count();
    if count <= MAX {
        return text.into();
    }
    let head: String = text.chars().take(MAX / 2).collect();
    let tail: String = text.chars().skip(count - MAX / 2).collect();
    format!("{head} … {tail}")
}
