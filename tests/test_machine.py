"""Memory that a container has left."""

from graphpass.machine import available_memory, memory_of_group


def test_page_cache_is_not_used_memory(tmp_path):
    for name, text in (
        ("max", "8000\n"),
        ("current", "7500\n"),
        ("stat", "anon 1000\nfile 6400\nactive_file 2000\ninactive_file 4000\n"),
    ):
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory_of_group(tmp_path, 10**9) == 6500


def test_a_group_without_a_limit(tmp_path):
    assert memory_of_group(tmp_path, 123) == 123
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_of_group(tmp_path, 123) == 123
    assert available_memory() > 0
