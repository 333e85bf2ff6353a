"""netCDF: readable by xarray, exact, and damage is always noticed."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.files import load, save_data


def example(kind: type = np.asarray) -> LabelData:
    X = kind(np.arange(8.0).reshape(4, 2))
    Y = np.array([[1, 0, np.nan], [np.nan] * 3, [0, 0, 0], [np.nan, np.nan, 1]])
    names = {"label_names": ["café", "日本", ""], "feature_names": ["x", "x"]}
    return LabelData(X, Y, **names, train_index=[0, 2], test_index=[3])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_exact_and_readable_by_xarray(tmp_path: Path, kind: type) -> None:
    data, path = example(kind), tmp_path / "t.nc"
    save_data(data, path)
    again = load(path)
    assert again.hash() == data.hash()
    np.testing.assert_array_equal(again.test_index, [3])
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        assert dataset.labels.values.tolist() == ["café", "日本", ""]
        if kind is np.asarray:
            np.testing.assert_array_equal(dataset.X.values, data.X)
            assert dataset.X.dims == ("obs", "feature")
        resaved = dataset.load()
    resaved.to_netcdf(tmp_path / "again.nc", engine="h5netcdf")
    assert load(tmp_path / "again.nc").hash() == data.hash()


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.nc"
    save_data(example(), path)
    content = path.read_bytes()
    for at in range(0, len(content), 401):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        try:
            assert load(path).hash() == example().hash()
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017
    for share in (0.0, 0.001, 0.3, 0.9, 0.99):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match=r"t\.nc: "):
            load(path)


def test_edited_contents_do_not_fit_the_hash(tmp_path: Path) -> None:
    path = tmp_path / "t.nc"
    save_data(example(), path)
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        edited = dataset.load()
    edited["X"] = edited["X"] + 1
    edited.to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=r"u\.nc: content_hash does not fit the contents"):
        load(tmp_path / "u.nc")


def test_other_files(tmp_path: Path) -> None:
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=r"a\.nc: is netCDF, but not data that labelzoo wrote \(found a"):
        load(tmp_path / "a.nc")
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"a": ("x", [1.0])})})
    tree.attrs = {"model": "label_logistic", "engine": "gibbs"}
    tree.to_netcdf(tmp_path / "p.nc", engine="h5netcdf")
    with pytest.raises(
        DataError, match="holds a posterior of the model 'label_logistic' by the engine 'gibbs'"
    ):
        load(tmp_path / "p.nc")
    (tmp_path / "t.nc").write_text("CDF")
    with pytest.raises(DataError, match=r"t\.nc: is not a netCDF-4 \(HDF5\) file"):
        load(tmp_path / "t.nc")


def test_sizes_are_held_against_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.nc"
    save_data(example(sparse.csr_array), path)
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        kept = dataset.load()
    for change, message in (
        ({"shape": [4, 2, 10**12]}, "Y_shape declares 1000000000000 labels, but 3 names"),
        ({"shape": [10**12, 2, 3]}, "X_shape declares 1000000000000 rows"),
        ({"shape": [4]}, "has no attribute shape"),
    ):
        kept.assign_attrs(change).to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
        with pytest.raises(DataError, match=message):
            load(tmp_path / "u.nc")
    unnamed = kept.drop_vars("labels").assign_attrs(shape=[4, 2, 10**12])
    unnamed.to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="declares 1000000000000 labels, but holds 2 entries and no names"):
        load(tmp_path / "u.nc")
