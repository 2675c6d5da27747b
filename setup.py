"""List the packages of the three source trees; pyproject.toml can search only one."""

from setuptools import find_packages, setup

#: passes/ and cli/ stand at the top of the checkout but install inside graphpass, so that nothing called `passes` or
#: `cli` lands in a user's site-packages.
TREES = {"graphpass": "graphpass", "graphpass.passes": "passes", "graphpass.cli": "cli"}

setup(
    package_dir=TREES,
    packages=[
        f"{tree}.{inner}".rstrip(".") for tree, folder in TREES.items() for inner in ("", *find_packages(folder))
    ],
)
