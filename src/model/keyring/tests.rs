//! Which entry matches which image, and invalid configurations.

use super::*;

/// Each registry's user is its own name.
fn keyring(registries: &[&str]) -> Keyring {
    let mut keyring = Keyring::default();
    for registry in registries {
        let text = format!(r#"{{"auths": {{"{registry}": {{"username": "{registry}"}}}}}}"#);
        keyring.add(text.as_bytes(), Form::Json).expect(registry);
    }
    keyring
}

fn found(registries: &[&str], repository: &str) -> Vec<String> {
    keyring(registries).find(repository).map(|auth| auth.username.to_string()).collect()
}

#[test]
fn an_entry_is_for_its_host_port_and_path() {
    for (key, repository, fits) in [
        ("x.io", "x.io/a/b", true),
        ("https://x.io", "x.io/a/b", true),
        ("http://x.io/v1/", "x.io/a", true),
        ("x.io/v2/a", "x.io/a/b", true),
        ("x.io/a", "x.io/a/b", true),
        ("x.io/b", "x.io/a/b", false),
        ("x.io/a/b", "x.io/a", false),
        ("x.io:5000", "x.io/a", false),
        ("x.io", "x.io:5000/a", false),
        ("x.io:5000", "x.io:5000/a", true),
        ("y.io", "x.io/a", false),
        ("*.x.io", "eu.x.io/a", true),
        ("*.x.io", "x.io/a", false),
        ("*.x.io", "a.eu.x.io/a", false),
        ("*.*.x.io", "a.eu.x.io/a", true),
        ("e[a-u].x.io", "eu.x.io/a", true),
        ("e[^u].x.io", "eu.x.io/a", false),
        ("e*u*.x.io:5000/a", "europe-u.x.io:5000/a/b", true),
        ("e[.x.io", "e[.x.io/a", false),
        ("docker.io", "docker.io/library/busybox", true),
        ("https://index.docker.io/v1/", "docker.io/library/busybox", true),
        ("https://index.docker.io/v1/", "x.io/library/busybox", false),
        ("[::1]:5000", "[::1]:5000/a", true),
    ] {
        assert_eq!(!found(&[key], repository).is_empty(), fits, "{key} {repository}");
    }
}

#[test]
fn all_that_fit_are_found_and_the_longest_path_comes_first() {
    let all = ["x.io", "x.io/a/b", "*.io", "x.io/a", "other.io", "x.io/a/b/c"];
    assert_eq!(found(&all, "x.io/a/b"), ["x.io/a/b", "x.io/a", "x.io", "*.io"]);
    // The old name of Docker Hub counts only if nothing else matches.
    let hub = ["index.docker.io", "docker.io/team"];
    assert_eq!(found(&hub, "docker.io/team/app"), ["docker.io/team"]);
    assert_eq!(found(&hub, "docker.io/library/app"), ["index.docker.io"]);
    // Several configurations may contain the same registry.
    assert_eq!(found(&["x.io", "https://x.io"], "x.io/a"), ["x.io", "https://x.io"]);
}

#[test]
fn both_forms_and_both_spellings_are_read() {
    let auth = |username: &str, password: &str| Auth {
        username: username.into(),
        password: password.into(),
    };
    for (text, form, want) in [
        (r#"{"auths": {"x.io": {"username": "u", "password": "p"}}}"#, Form::Json, auth("u", "p")),
        (
            r#"{"x.io": {"username": "u", "password": "p", "email": "e"}}"#,
            Form::Cfg,
            auth("u", "p"),
        ),
        (r#"{"auths": {"x.io": {"auth": "dTpwOnE="}}}"#, Form::Json, auth("u", "p:q")),
        (r#"{"auths": {"x.io": {"auth": "dTpwOnE"}}}"#, Form::Json, auth("u", "p:q")),
        (
            r#"{"auths": {"x.io": {"username": "a", "password": "b", "auth": "dTpw"}}, "x": 1}"#,
            Form::Json,
            auth("u", "p"),
        ),
    ] {
        let mut keyring = Keyring::default();
        keyring.add(text.as_bytes(), form).expect(text);
        assert_eq!(keyring.find("x.io/a").collect::<Vec<_>>(), [&want], "{text}");
    }
    let mut empty = Keyring::default();
    for text in ["{}", r#"{"auths": null}"#, ""] {
        empty.add(text.as_bytes(), Form::Json).expect(text);
    }
    assert_eq!(empty, Keyring::default());
}

#[test]
fn what_is_wrong_is_named_and_nothing_secret_is_shown() {
    let many: Vec<String> =
        (0..=KEYRING_ENTRIES_MAX).map(|n| format!("\"r{n}.io\": {{}}")).collect();
    let long = format!("{{\"auths\": {{{}}}}}", many.join(","));
    for (text, want) in [
        ("secret", "got no JSON, line 1 column 1"),
        (r#"{"auths": {"x.io": {"auth": "secret"#, "got no JSON, line 1 column"),
        (r#"["secret"]"#, "the whole: got a list, expected a map"),
        (r#"{"auths": "secret"}"#, "auths: got text, expected a map"),
        (r#"{"auths": {"x.io": "secret"}}"#, "\"x.io\": the entry: got text, expected a map"),
        (r#"{"auths": {"x.io": {"password": 5}}}"#, "\"x.io\": password: got a number, expected"),
        (r#"{"auths": {"x.io": {"auth": "secret!"}}}"#, "\"x.io\": auth: got text that is not"),
        (
            r#"{"auths": {"x.io": {"auth": "c2VjcmV0"}}}"#,
            "auth: got text without a colon, expected to be",
        ),
        (&*long, "entries, expected fewer"),
    ] {
        let why = Keyring::default().add(text.as_bytes(), Form::Json).expect_err(text).to_string();
        assert!(why.contains(want), "{text}: {why}");
        assert!(!why.contains("secret") && !why.contains("c2VjcmV0"), "{why}");
    }
    assert!(!format!("{:?}", keyring(&["x.io"]).find("x.io/a").next()).contains("password: \""));
}

#[test]
fn a_configuration_has_a_bound_of_bytes_and_of_entries() {
    let padded = |bytes: usize| format!("{{\"auths\": {{}}{}}}", " ".repeat(bytes - 13));
    let add = |text: &str| Keyring::default().add(text.as_bytes(), Form::Json);
    assert_eq!(padded(KEYRING_BYTES_MAX).len(), KEYRING_BYTES_MAX);
    assert_eq!(add(&padded(KEYRING_BYTES_MAX)), Ok(()));
    let got = KEYRING_BYTES_MAX + 1;
    let wrong = Input::new(format_args!("{got} bytes"), format!("{KEYRING_BYTES_MAX} at most"));
    assert_eq!(add(&padded(got)), Err(wrong));
    // Entries count together, whichever configuration they are from.
    let mut keyring = Keyring::default();
    let mut char_set = |number: usize| {
        let text = format!("{{\"auths\": {{\"r{number}.io\": {{\"username\": \"u\"}}}}}}");
        keyring.add(text.as_bytes(), Form::Json)
    };
    assert!((0..KEYRING_ENTRIES_MAX).all(|number| char_set(number).is_ok()));
    let wrong = char_set(KEYRING_ENTRIES_MAX).expect_err("one too many").to_string();
    assert!(wrong.contains("entries, expected fewer"), "{wrong}");
}
