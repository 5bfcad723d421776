//! The list of upstream's tests that a conformance run covers.
//!
//! `upstream.txt` has each test of Kubernetes [`VERSION`] that is in `test/e2e/common` or
//! `test/e2e/node` and has the tag `[Conformance]` or `[NodeConformance]`, and each test of
//! `test/e2e_node` whatever its tags. A line `# AREA (FILE)` begins the tests of one title in one
//! file; a line `TAGS NAME` is a test, with `C` for Conformance, `N` for NodeConformance, `-` for
//! neither. A name has its contexts before it if the title has that name more than once. Two suites
//! share the titles ConfigMap and Secrets: `volume` follows the storage suite's. Tests that a loop
//! makes from a table are listed one by one.

/// The Kubernetes release of the list.
pub(crate) const VERSION: &str = "1.36";

const LIST: &str = include_str!("upstream.txt");

/// An upstream test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// The title of its suite.
    pub(crate) area: &'static str,
    /// Its name, with its contexts if needed.
    pub(crate) name: &'static str,
    /// Whether it belongs to the suite Conformance.
    pub(crate) conformance: bool,
    /// Whether it belongs to the suite NodeConformance.
    pub(crate) node_conformance: bool,
    /// Whether it is in `test/e2e_node`.
    pub(crate) of_node_suite: bool,
}

/// All of them, in the order of the list.
pub(crate) fn specs() -> Vec<Spec> {
    let (mut area, mut of_node_suite) = ("", false);
    let mut specs = Vec::new();
    for line in LIST.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            let file;
            (area, file) = title.rsplit_once(" (").expect("a title and its file");
            of_node_suite = file.starts_with("e2e_node/");
        } else {
            let (tags, name) = line.split_once(' ').expect("tags and a name");
            let (conformance, node_conformance) = (tags.contains('C'), tags.contains('N'));
            specs.push(Spec { area, name, conformance, node_conformance, of_node_suite });
        }
    }
    specs
}
