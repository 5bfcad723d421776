//! A row of a table with one text in each: KubeEdge's `target_urls` and `sub_topics`.

/// A change of such a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRow {
    pub text: Box<str>,
    /// Whether there is a row from now on.
    pub exists: bool,
}
