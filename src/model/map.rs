//! An ordered map and an ordered set, each in one vector.
//!
//! `BTreeMap` has two to three kilobytes of code for each pair of types that it is made for; a
//! program has dozens of pairs. This one has some hundred bytes. A look-up takes O(log n), and an
//! insertion or a removal moves what stands behind it: it is for some hundred entries, or for keys
//! that ascend. What may have many more in any order stays a `BTreeMap`.

use std::borrow::Borrow;
use std::ops::Index;
use std::slice;

/// Keys ascend, each once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Map<K, V>(Vec<(K, V)>);

/// Keys ascend, each once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set<K>(Map<K, ()>);

impl<K: Ord, V> Map<K, V> {
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(other, _)| other.borrow().cmp(key))
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// The value that the key had before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// The place of this key, to be filled if it is empty.
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        Entry { found: self.find(&key), map: self, key }
    }
}

/// What [`Map::entry`] returns.
#[derive(Debug)]
pub struct Entry<'a, K, V> {
    map: &'a mut Map<K, V>,
    key: K,
    found: Result<usize, usize>,
}

impl<'a, K, V> Entry<'a, K, V> {
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
        let entries = &mut self.map.0;
        match self.found {
            Ok(at) => &mut entries[at].1,
            Err(at) => {
                entries.insert(at, (self.key, value()));
                &mut entries[at].1
            }
        }
    }

    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<K, V> Map<K, V> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> Iter<'_, K, V> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.0.iter_mut().map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator + Clone {
        self.0.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator + Clone {
        self.0.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    pub fn into_values(self) -> impl DoubleEndedIterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Gives back the memory that further entries would take.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }
}

impl<K: Ord> Set<K> {
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Whether it was not there.
    pub fn insert(&mut self, key: K) -> bool {
        self.0.insert(key, ()).is_none()
    }

    /// Whether it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.remove(key).is_some()
    }
}

impl<K> Set<K> {
    pub const fn new() -> Self {
        Self(Map::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn first(&self) -> Option<&K> {
        self.iter().next()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator + Clone {
        self.0.keys()
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.0.retain(|key, ()| keep(key));
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Default for Set<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for Map<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the map has this key")
    }
}

/// Of two entries with one key the later one counts.
impl<K: Ord, V> Extend<(K, V)> for Map<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Map<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord> Extend<K> for Set<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl<K: Ord> FromIterator<K> for Set<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut set = Self::new();
        set.extend(keys);
        set
    }
}

pub type Iter<'a, K, V> = std::iter::Map<slice::Iter<'a, (K, V)>, fn(&(K, V)) -> (&K, &V)>;
pub type IterMut<'a, K, V> =
    std::iter::Map<slice::IterMut<'a, (K, V)>, fn(&mut (K, V)) -> (&K, &mut V)>;

impl<'a, K, V> IntoIterator for &'a Map<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut Map<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<K, V> IntoIterator for Map<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K> IntoIterator for Set<K> {
    type Item = K;
    type IntoIter = std::iter::Map<std::vec::IntoIter<(K, ())>, fn((K, ())) -> K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.0.into_iter().map(|(key, ())| key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Numbers that look random.
    fn numbers() -> impl Iterator<Item = u32> {
        std::iter::successors(Some(1_u32), |last| {
            Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
        })
        .map(|number| number >> 24)
    }

    #[test]
    fn it_does_what_the_standard_librarys_map_does() {
        let (mut ours, mut theirs) = (Map::new(), BTreeMap::new());
        for (at, key) in numbers().take(20_000).enumerate() {
            if at % 3 < 2 {
                assert_eq!(ours.insert(key, at), theirs.insert(key, at));
                *ours.entry(key / 2).or_insert(at) += 1;
                *theirs.entry(key / 2).or_insert(at) += 1;
            } else {
                assert_eq!(ours.remove(&key), theirs.remove(&key));
            }
            assert_eq!(ours.get(&key), theirs.get(&key));
            assert_eq!(ours.get_mut(&(key / 3)), theirs.get_mut(&(key / 3)));
            assert_eq!(ours.contains_key(&(key / 2)), theirs.contains_key(&(key / 2)));
            assert_eq!((ours.len(), ours.is_empty()), (theirs.len(), theirs.is_empty()));
            if at % 1_000 == 0 {
                ours.retain(|key, value| *key % 3 != 0 && *value % 2 == 0);
                theirs.retain(|key, value| *key % 3 != 0 && *value % 2 == 0);
            }
            if at % 100 == 0 {
                assert!(ours.iter().eq(theirs.iter()), "after {at}");
                assert!(ours.keys().eq(theirs.keys()) && ours.values().eq(theirs.values()));
            }
        }
        for (ours, theirs) in ours.iter_mut().zip(theirs.iter_mut()) {
            assert_eq!(ours, theirs);
        }
        let again: Map<u32, usize> = ours.clone().into_iter().rev().collect();
        assert_eq!(again, ours);
        assert!(ours.into_values().eq(theirs.into_values()));
    }

    #[test]
    fn the_last_of_two_with_one_key_counts_and_a_set_has_it_once() {
        let map = Map::from_iter([(2, 'a'), (1, 'b'), (2, 'c')]);
        assert!(map.into_iter().eq([(1, 'b'), (2, 'c')]));
        let mut set = Set::from_iter(["b", "a", "b"]);
        assert_eq!((set.len(), set.contains("a"), set.contains("c")), (2, true, false));
        assert!(!set.insert("a") && set.insert("c") && set.remove("b") && !set.remove("b"));
        set.retain(|key| *key != "a");
        assert_eq!(set.first(), Some(&"c"));
        assert!(!set.is_empty() && set.iter().eq([&"c"]) && set.into_iter().eq(["c"]));
        let mut map = Map::from([(1, 'a')]);
        assert_eq!((*map.entry(1).or_default(), *map.entry(0).or_default()), ('a', '\0'));
        map.clear();
        assert!(map.is_empty());
    }
}
